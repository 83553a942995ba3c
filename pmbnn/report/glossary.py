"""Terms of the page, the tables and the documentation, each with its one meaning."""

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

TERMS: Mapping[str, str] = {
    "cell": "One fit: a data set with its data seed, a network, a prior, a hyperprior, a "
    "likelihood and a method of inference. Each has a folder of its own.",
    "combination": "A prior and a hyperprior. Its cells differ in their seeds only.",
    "hyperprior": "The distribution of the scale of a prior. Under a fixed one the scale is a "
    "number; under any other it is learned with the weights.",
    "tuned": "A fixed scale is tuned if it is chosen from a grid of candidates, by the NLL of "
    "held-out training rows; the network is then fitted to all training rows. Under Laplace's "
    "approximation without held-out rows it is chosen by the evidence of all training rows.",
    "at an end of the grid": "The chosen scale or learning rate is the smallest or largest "
    "candidate. One beyond may be better: widen the grid.",
    "data seed": "The seed of a data set. Another seed draws other rows, or splits the same rows "
    "anew into training and test rows. Standard errors and intervals are over data seeds.",
    "posterior": "The distribution of the weights given the data. Samplers (MCLMC, MAMS, NUTS, "
    "SMC) draw from it; ADVI approximates it by a guide.",
    "guide": "The family of distributions from which variational inference (ADVI) takes its "
    "approximation of the posterior. A mean-field guide is normal without correlations.",
    "restart": "One of several fits of a cell from different starting points. The cell predicts "
    "with the restart of the highest ELBO.",
    "ELBO": "Evidence lower bound, in nats: what ADVI maximises. The log evidence of the model is "
    "at least as high.",
    "KL weight": "Factor of the Kullback-Leibler term in the ELBO. Below 1 the fit is to a "
    "tempered posterior.",
    "NLL": "Negative log-likelihood of rows that were not fitted, in nats per observation. Lower "
    "is better.",
    "excess NLL": "NLL less that of the best possible predictions, which are known where data are "
    "synthetic; at fresh points. Zero is perfect.",
    "excess error": "Share of misclassified fresh points less that of the best possible "
    "classifier.",
    "fresh points": "Points of a synthetic data set that are neither training nor test rows. "
    "Their labels are integrated out exactly.",
    "ECE": "Expected calibration error: the mean gap between the probability of the predicted "
    "class and how often that class is right.",
    "RMSE": "Root mean squared error, in the units of the target.",
    "CRPS": "Continuous ranked probability score, in the units of the target: the error of a "
    "whole predictive distribution. Lower is better.",
    "coverage": "Share of test rows within the predictive intervals of the named probability.",
    "conformal": "Conformal intervals and sets: rows set aside, on which nothing is fitted, decide "
    "how wide they are. They cover new rows with the named probability, however wrong the model.",
    "standard error": "The standard error of a mean over data seeds. Where data seeds split the "
    "same rows anew, it is corrected for overlapping splits (Nadeau and Bengio 2003).",
    "simultaneous": "Simultaneous intervals all hold at once with probability 95 %, whichever "
    "combination is found best and however many there are.",
    "margin": "The difference below which two methods count as practically the same, in nats per "
    "observation: `margin` of the experiment file.",
    "floor": "The distance between halves of the posterior's own draws. No fit can be shown to be "
    "nearer to the posterior than this.",
    "Monte-Carlo error": "Standard error of a number that comes from a finite number of draws.",
}
"""Meanings of terms that stand in sentences and headings."""

VERDICTS: Mapping[str, str] = {
    "best": "The combination with the lowest mean score.",
    "not significantly worse": "The interval of the difference to the best includes zero. This "
    "does not show that the two are equal.",
    "significantly worse": "The whole interval of the difference to the best is above zero, and "
    "does not lie within the margin.",
    "equivalent (within the margin)": "The whole interval of the difference lies within the "
    "margin on both sides of zero.",
    "undecided": "The data do not decide: the interval allows several verdicts, or there is no "
    "interval, as with fewer than three data seeds. Of chains: they disagree on what is predicted, "
    "or their steps were too long. Of a fit beside the posterior: neither agrees nor differs.",
    "no score": "Nothing was held out to rank the combination by, or it failed.",
    "agrees": "A fit is no further from the posterior than one and a half times the floor.",
    "differs": "A fit is further from the posterior than that, by two Monte-Carlo errors or more.",
    "better": "The whole interval of the first less the second is below zero, beyond the margin "
    "where there is one.",
    "worse": "The whole interval of the first less the second is above zero, beyond the margin "
    "where there is one.",
    "faithful": "ADVI and the posterior give the same difference, within the margin.",
    "distorts": "The differences under ADVI and under the posterior are further apart than the "
    "margin.",
    "reverses": "The first is better under ADVI and worse under the posterior, or the reverse.",
    "converged": "The ELBO no longer rose, or the chains agree on what is predicted (R-hat).",
    "not converged": "The ELBO still rose when the steps were over. More steps may change the "
    "result.",
    "ensemble": "Chains that each keep to a mode of their own, pooled (MILE). They are no draws of "
    "the posterior, and verdicts about them are about the procedure.",
    "refuted": "Chains whose mean log-likelihood is below the ELBO or the evidence of the same "
    "model: their draws are not of the posterior, and are compared with nothing.",
    "improper": "A fit under a prior without a normalised density, such as a flat one. Its ELBO "
    "has no maximum.",
    "diverged": "There is no result: the ELBO is not finite, Laplace's approximation found no "
    "mode, or too many chains met a number that is not finite.",
    "error": "The cell failed; its reason says why. The next sweep tries it again.",
    "out of memory": "The system ended the worker of the cell twice, as where memory is full. The "
    "next sweep tries it again.",
}
"""Meanings of verdicts, on comparisons and on fits, as badges and tables write them."""

GLOSSARY: Mapping[str, str] = dict(
    sorted((TERMS | VERDICTS).items(), key=lambda entry: entry[0].lower())
)
"""All of them, in alphabetical order."""


_VERDICT_TEXTS = {"equivalent": "equivalent (within the margin)"}


def verdict_text(verdict: str) -> str:
    """A verdict of a stored table, such as ``equivalent``, as people read it."""
    return _VERDICT_TEXTS.get(verdict, verdict)


def anchor(term: str) -> str:
    """Name of a term's place on a page: ``term-data-seed``."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def meaning(title: str) -> str:
    """Meaning of the term that a heading names, with or without a unit; empty for any other."""
    words = re.sub(r" \([^)]*\)$", "", title)
    return GLOSSARY.get(title) or GLOSSARY.get(words) or GLOSSARY.get(words.removesuffix("s"), "")


def _pattern() -> re.Pattern[str]:
    """Terms in a sentence, in the plural too; those of small letters may begin one."""
    longest_first = sorted(TERMS, key=len, reverse=True)
    words = [f"(?i:{re.escape(t)})" if t.islower() else re.escape(t) for t in longest_first]
    return re.compile(rf"(?<![\w-])({'|'.join(words)})(s?)(?![\w-])")


_TERM = _pattern()


def link_terms(text: str) -> Markup:
    """A sentence, escaped, in which the first of each term is a link to the glossary."""
    linked: set[str] = set()

    def link(match: re.Match[str]) -> str:
        words, plural = match.groups()
        term = words if words in TERMS else words.lower()
        if term in linked:
            return match[0]
        linked.add(term)
        return f'<a class="term" href="#{anchor(term)}">{words}{plural}</a>'

    return Markup(_TERM.sub(link, str(escape(text))))
