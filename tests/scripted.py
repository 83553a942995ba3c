"""A predictor of classes that says of a fit what a test tells it to."""

from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.predictor import Predictor


class ScriptedProbabilities(ClassProbabilities):
    """Mixtures are the library's own; predictions of single fits are the script's."""

    @classmethod
    def of_fit(cls, predictor, fit, data, x, draws):
        return predictor.moments(fit, data, x, draws)


class ScriptedPredictor:
    """Subclasses say in ``moments(fit, data, x, draws)`` what one fit predicts."""

    predictive = ScriptedProbabilities
    predict = Predictor.predict
    predict_mixtures = Predictor.predict_mixtures
    nll = Predictor.nll
