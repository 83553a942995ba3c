"use strict";

// Tables: sorted by their headings, filtered by words and choices.

function textOf(cell) {
  return cell.textContent.trim();
}

function orderOf(cell) {
  return "order" in cell.dataset ? Number(cell.dataset.order.replace("inf", "Infinity")) : null;
}

// Numbers come before text, and what is empty last, whichever way a column is sorted.
function compareCells(a, b, direction) {
  const [x, y] = [orderOf(a), orderOf(b)];
  if (x !== null && y !== null) return direction * (x - y);
  if (x !== null || y !== null) return x !== null ? -1 : 1;
  const [s, t] = [textOf(a), textOf(b)];
  if (!s || !t) return (s ? 0 : 1) - (t ? 0 : 1);
  return direction * s.localeCompare(t, "en", { numeric: true });
}

function sortBy(table, heading) {
  const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  const at = heading.cellIndex;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compareCells(a.cells[at], b.cells[at], direction));
  table.tBodies[0].append(...rows);
}

function filterRows(block) {
  const words = block.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  const choices = [...block.querySelectorAll("select")].filter((select) => select.value);
  const rows = [...block.querySelector("tbody").rows];
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const fits =
      words.every((word) => text.includes(word)) &&
      choices.every((select) => textOf(row.cells[select.dataset.column]) === select.value);
    row.hidden = !fits;
    shown += fits;
  }
  const output = block.querySelector("output");
  const noun = output.dataset.noun;
  output.textContent = shown === rows.length ? `${shown} ${noun}` : `${shown} of ${rows.length} ${noun}`;
}

for (const block of document.querySelectorAll(".data-table")) {
  const table = block.querySelector("table");
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, heading));
  }
  for (const kind of ["input", "change"]) {
    block.querySelector(".filters").addEventListener(kind, () => filterRows(block));
  }
  filterRows(block);
}

// Grids: one data seed at a time.

for (const select of document.querySelectorAll("select[data-grids]")) {
  const show = () => {
    for (const option of select.options) {
      document.getElementById(option.value).hidden = option.value !== select.value;
    }
  };
  select.addEventListener("change", show);
  show();
}

// The dialog: a cell or a figure; the focus goes back to what opened it.

const detail = document.getElementById("detail");
const detailTitle = document.getElementById("detail-title");
const detailContent = document.getElementById("detail-content");
let opener = null;

function openDetail(title, content, from) {
  opener = from;
  detailTitle.textContent = title;
  detailContent.replaceChildren(content);
  detail.showModal();
  detail.scrollTop = 0;
  detailTitle.focus();
}

function openCell(button) {
  const template = document.getElementById(button.dataset.cell);
  openDetail(template.dataset.title, template.content.cloneNode(true), button);
}

function openFigure(button) {
  const image = button.querySelector("img").cloneNode();
  image.className = "figure";
  image.alt = button.dataset.figure;
  openDetail(button.dataset.figure, image, button);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-cell], [data-figure], [data-show]");
  if (!button) return;
  if (button.dataset.cell) openCell(button);
  else if (button.dataset.figure) openFigure(button);
  else {
    // A link to a figure: what it lies folded in must open first.
    event.preventDefault();
    const figure = document.getElementById(button.dataset.show);
    figure.closest("details").open = true;
    figure.scrollIntoView({ block: "center" });
    figure.focus();
  }
});
document.getElementById("detail-close").addEventListener("click", () => detail.close());
detail.addEventListener("click", (event) => {
  if (event.target === detail) detail.close();
});
detail.addEventListener("close", () => {
  detailContent.replaceChildren();
  opener?.focus();
  opener = null;
});
