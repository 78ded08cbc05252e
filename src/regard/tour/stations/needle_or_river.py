"""The diagnosis: too thin like a needle, too thick like a river, or about right."""

from __future__ import annotations

from regard import NadarayaWatsonRegressor, attention_weights
from regard.core.scores import Gaussian
from regard.plot import show_heatmaps
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.stations.learned import by_lbfgs
from regard.tour.texts import fill, read_texts

TEXTS = read_texts("stations/needle_or_river")

# Fitted w over the learned one.
FACTORS = (8.0, 1.0, 1 / 8)


def compute(visit: Visit) -> Findings:
    x_train, y_train = visit.data.x_train, visit.data.y_train
    w_values = [factor * float(by_lbfgs(visit).w_) for factor in FACTORS]
    found = [NadarayaWatsonRegressor(bandwidth=1 / w).fit(x_train[:, None], y_train).diagnose() for w in w_values]
    weights = [attention_weights(x_train, x_train, Gaussian(w=w)) for w in w_values]
    values = [{"w": w, **d._asdict(), "verdict": TEXTS[d.verdict]} for w, d in zip(w_values, found, strict=True)]
    figure = show_heatmaps(
        [[a / a.max() for a in weights]],
        xlabel=visit.label(TEXTS["keys"]),
        ylabel=visit.label(TEXTS["queries"]),
        titles=[visit.label(TEXTS["panel"], **each) for each in values],
        figsize=(8.4, 3.7),
    )
    figure.axes[-1].set_ylabel(visit.label(TEXTS["colours"]))
    large, best, small = (fill(TEXTS["found"], **each) for each in values)
    return findings(
        TEXTS,
        {"diagnosis": figure},
        large=large,
        best=best,
        small=small,
        neighbours=[d.neighbours for d in found],
        factor=[d.factor for d in found],
    )


STATION = Station("diagnosis", TEXTS, compute)
