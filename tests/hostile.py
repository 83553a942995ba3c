"""Results whose every word tries to be more than text."""

INJECTIONS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</template><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title><svg onload=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<!--<script>alert(1)",
    "]]><script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "\\u003cscript\\u003ealert(1)",
    "&lt;script&gt;alert(1)",
    "+ADw-script+AD4-alert(1)",
    "a\u2028b\u202e\u0000<b>",
)


def harmless(text):
    """Words of one length and no signs, so that a page of them has the elements of the other."""
    return "".join(letter if letter.isalnum() else "x" for letter in text)


def as_folder(text):
    """The same as the name of a folder."""
    return text.replace("/", "∕").replace("\u0000", "")


def records(make_record, words):
    """A cell for each text, which says it wherever a record says anything."""
    found = []
    for number, said in enumerate(words):
        settings = {
            "dataset": {"kind": said, "noise": 0.4, said: said},
            "network": {"kind": said},
        }
        priors = {name: {"kind": said} for name in ("prior", "hyperprior")}
        given = {"accuracy": 0.8, "excess_error": 0.01} if number % 8 == 0 else {}
        given |= {"status": "converged" if given else "error", "reason": said, "sweep": said}
        name = f"{number}{as_folder(said)}"
        record = make_record(name=name, source=said, traceback=said, **settings, **given)
        found.append(record.model_copy(update={"settings": record.settings | priors}))
    return found
