"""A predictor of classes that says of a fit what a test tells it to."""

from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.predictor import Predictor


class ScriptedProbabilities(ClassProbabilities):
    """Mixtures are the library's own; predictions by single sources are the script's."""

    @classmethod
    def of_source(cls, predictor, source, data, x, draws):
        return predictor.moments(source, data, x, draws)


class ScriptedPredictor:
    """Subclasses say in ``moments(source, data, x, draws)`` what one source predicts."""

    predictive = ScriptedProbabilities
    predict = Predictor.predict
    predict_mixtures = Predictor.predict_mixtures
    nll = Predictor.nll
