"""What docs/notes.md says about the notes' claims, computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from notes_numbers import ENOUGH, noise_slopes, numbers, softmax
from regard import NadarayaWatsonRegressor, attention_weights, pool
from regard.data import notes, notes_truth, reversal
from regard.nn import AdditiveAttentionReg, AdditiveScore, ConcatenatedScore
from regard.scores import KERNELS, Gaussian, Nearest


@pytest.fixture(scope="module")
def known():
    return numbers()


@pytest.fixture
def data():
    return notes(seed=0)


def test_the_data(data, known):
    assert known["top"] == pytest.approx(notes_truth(np.linspace(0.0, 5.0, 100_001)).max(), rel=1e-6)
    assert [len(part) for part in data] == [50] * 4
    assert (np.diff(data.x_train) >= 0.0).all()
    assert 0.0 <= data.x_train[0] < data.x_train[-1] < 5.0
    assert np.allclose(data.x_test, 0.1 * np.arange(50))
    assert np.array_equal(data.y_truth, 2.0 * np.sin(data.x_test) + data.x_test**0.8)


def test_the_noise_is_a_standard_deviation(known):
    many = notes(n_train=100_000)
    off = many.y_train - notes_truth(many.x_train)
    assert off.std() == pytest.approx(known["noise"], rel=0.01)
    assert known["noise_as_variance"] == pytest.approx(np.sqrt(0.5))


def test_the_formulas_as_meant_are_attention(known):
    for name in ("ratio", "sum", "feature", "order"):
        assert known[f"{name}_gap"] < 1e-12, name
    assert known["kernel_area"] == pytest.approx(1.0, abs=1e-6)
    data = notes(seed=0)
    curve = pool(data.x_test, data.x_train, data.y_train, Gaussian(w=1.0)).output
    assert data.y_train.min() < curve.min() < curve.max() < data.y_train.max()


def test_the_sum_printed_in_formula_5_is_the_mean(data, known):
    """Whatever w is: no term of the sum depends on j."""
    assert known["printed_gap"] < 1e-12
    for w in (0.1, 1.0, 3.0):
        kernel = np.exp(-0.5 * (w * (data.x_test[:, None] - data.x_train)) ** 2)
        assert np.allclose(kernel / sum(kernel for _ in data.x_train), 1.0 / len(data.x_train), rtol=1e-12)


def test_far_from_all_keys_the_ratio_fails_and_softmax_does_not(data):
    kernel = np.exp(-0.5 * (1e3 - data.x_train) ** 2)
    assert kernel.sum() == 0.0
    assert pool([1e3], data.x_train, data.y_train, Gaussian(w=1.0)).output[0] == data.y_train[-1]


@pytest.mark.parametrize("name", KERNELS)
def test_nearer_keys_weigh_more(name, data):
    import regard.scores

    score = getattr(regard.scores, "".join(part.title() for part in name.split("-")))(w=0.3)
    weights = attention_weights([2.5], data.x_train, score)[0]
    order = np.argsort(np.abs(data.x_train - 2.5))
    assert (np.diff(weights[order]) <= 1e-15).all()
    assert weights[order[0]] >= weights[order[-1]]


def test_consistency_needs_a_shrinking_bandwidth(known):
    assert known["enough"] == ENOUGH
    assert known["fixed_many"] > known["fixed_few"], "on these data, more of them are even worse"
    assert known["fixed_many"] == pytest.approx(known["bias"], rel=0.02)
    assert known["shrinking_many"] < 0.3 * known["shrinking_few"]
    # Twenty thousand rows instead of fifty: the standard deviation falls like 1/√n.
    assert known["deviation_many"] == pytest.approx(known["deviation_few"] * np.sqrt(50 / ENOUGH), rel=0.1)


def test_with_itself_among_the_keys_a_row_is_copied(known):
    assert known["itself_gap"] < 1e-12


def test_batches_of_matrices():
    assert torch.bmm(torch.ones((2, 1, 4)), torch.ones((2, 4, 6))).shape == (2, 1, 6)
    weights, values = torch.full((2, 10), 0.1), torch.arange(20.0).reshape(2, 10)
    averages = torch.bmm(weights.unsqueeze(1), values.unsqueeze(-1))
    assert averages.flatten().tolist() == pytest.approx([4.5, 14.5])
    every = torch.mm(weights, values.t())
    assert torch.allclose(every, torch.tensor([[4.5, 14.5], [4.5, 14.5]]))


def test_the_order_of_the_keys_does_not_matter(known):
    assert known["order_gap"] < 1e-12


def test_the_nonparametric_curve_is_smooth_and_too_flat(known):
    assert known["soft_error"] < known["mean_error"]
    assert known["rough_fixed"] < 0.2 * known["rough_truth"]


def test_sorting_shows_the_diagonal_and_does_not_make_it(known):
    assert known["sorted_places"] > 0.99
    assert abs(known["shuffled_places"]) < 0.3
    assert known["shuffled_numbers"] == pytest.approx(known["sorted_places"], abs=1e-6)


def test_three_ways_to_leave_a_row_out(data):
    x, y, score = data.x_train, data.y_train, Gaussian(w=2.0)
    others = ~np.eye(len(x), dtype=bool)
    keys, values = (np.tile(part, (len(x), 1))[others].reshape(len(x), -1) for part in (x, y))
    copied = [pool(x[[i]], keys[i], values[i], score).output[0] for i in range(len(x))]
    rows = np.arange(len(x))
    assert np.allclose(pool(x, x, y, score, mask=others).output, copied, rtol=1e-12)
    assert np.allclose(pool(x, x, y, score, exclude=(rows, rows)).output, copied, rtol=1e-12)


def test_five_epochs_overshoot(known):
    assert 0.0 <= known["w_start"] < 1.0
    assert known["w_learned"] > 2.0 * known["w_best"]
    assert known["loss_first"] > known["loss_last"] > known["loss_after"] > known["loss_best"]
    assert known["rough_learned"] > 100.0 * known["rough_fixed"]
    assert known["best_error"] < known["learned_error"] < known["soft_error"]


def test_the_learned_curve_is_rougher_where_few_keys_share_the_weight(known):
    """And flat where a single key has nearly all of it."""
    assert known["noise_ratio"] > 1.2
    assert known["slope_dominated"] < 0.5 * known["slope_shared"]
    # The slopes due to noise, beside finite differences of the weights.
    query = np.linspace(1.0, 4.0, 2001)
    weights = attention_weights(query, notes().x_train, Gaussian(w=known["w_best"]))
    slopes = 0.5 * np.sqrt((np.gradient(weights, query, axis=0) ** 2).sum(1))
    found, largest = noise_slopes(query, known["w_best"])
    assert np.allclose(found[1:-1], slopes[1:-1], rtol=1e-3)
    assert np.array_equal(largest, weights.max(1))


def test_additive_attention_is_a_network_on_the_pair():
    """One hidden layer on [q; k], and h units in it."""
    torch.manual_seed(0)
    pair = ConcatenatedScore(2, 3, 4).double()
    query, key = torch.randn(5, 2).double(), torch.randn(6, 3).double()
    both = torch.cat([query[:, None].expand(5, 6, 2), key.expand(5, 6, 3)], -1)
    network = (torch.tanh(both @ pair.W.weight.T) @ pair.w_v.weight.T)[..., 0]
    for score in (pair, pair.as_additive()):
        assert torch.allclose(score(query[None], key[None])[0], network, rtol=1e-12)
    assert isinstance(pair.as_additive(), AdditiveScore)


def test_a_dot_product_has_variance_d(known):
    assert known["product_mean"] == 0.0
    assert known["product_variance"] == known["d"]
    assert known["scaled_variance"] == pytest.approx(1.0)


def test_a_kernel_is_a_dot_product_if_the_keys_have_equal_norms(known):
    assert known["unit_gap"] < 1e-12
    assert known["key_term_gap"] < 1e-12
    assert 0.1 < known["no_key_term"] < 1.0


def test_the_nearest_key_is_the_limit_of_large_w(known, data):
    assert known["nearest_gap"] < 1e-12
    assert attention_weights([1.0], [0.0, 2.0, 5.0], Nearest()).tolist() == [[0.5, 0.5, 0.0]], "equally near keys share"


def test_softmax_of_the_kernel_is_another_thing(data, known):
    kernel = np.exp(-0.5 * (data.x_test[:, None] - data.x_train) ** 2)
    assert np.allclose(softmax(np.log(kernel)), kernel / kernel.sum(1, keepdims=True), rtol=1e-12)
    assert known["of_kernel"] > 0.3


def test_values_have_no_part_in_the_weights(data):
    for y in (data.y_train, -data.y_train, np.zeros(50)):
        model = NadarayaWatsonRegressor(bandwidth=1.0).fit(data.x_train[:, None], y)
        weights = model.attend(data.x_test[:, None])
        assert np.allclose(weights, attention_weights(data.x_test, data.x_train, Gaussian(w=1.0)), rtol=1e-12)


@pytest.mark.parametrize("w", [0.3, 1.0, 5.0, 25.0, 1000.0])
def test_the_line_is_straight_for_every_w(w, data):
    """Nothing has been learned, and no width is right."""
    found = attention_weights(data.x_test, data.x_train, Gaussian(w=w)).argmax(1)
    assert spearmanr(data.x_test, data.x_train[found]).statistic > 0.99


def test_a_needle_and_a_river(known):
    assert known["needle_with"] < 0.1 * known["needle_without"]
    assert known["river_with"] > 0.9 * known["river_without"] > 0.5


def test_a_reversed_word_matches_on_the_other_diagonal():
    pairs = reversal(20)
    for source, places in zip(pairs.source, pairs.alignment, strict=True):
        assert places == tuple(reversed(range(len(source))))


def test_rank_is_not_what_a_query_seeks():
    """Keys crowd at the left: the line bends, although every query finds its nearest key."""
    keys, queries = np.linspace(0.0, 1.0, 51) ** 3, np.linspace(0.0, 1.0, 51)
    found = attention_weights(queries, keys, Gaussian(w=1e3)).argmax(1)
    assert (np.abs(keys[found] - queries) <= np.abs(keys - queries[:, None]).min(1) + 1e-12).all()
    assert found[0] == 0
    assert found[10] > 20


def test_twice_w_is_the_fourth_power(data, known):
    one, two = (attention_weights(data.x_test, data.x_train, Gaussian(w=w)) for w in (1.0, 2.0))
    assert np.allclose(two, one**4 / (one**4).sum(1, keepdims=True), rtol=1e-10)
    assert known["keys_learned"] < 0.2 * known["keys_fixed"]


def test_one_w_is_the_same_everywhere(known):
    """Among keys that lie alike the weights are alike, wherever they lie; only few keys make them large."""
    around, score = np.array([-0.2, 0.0, 0.3]), Gaussian(w=5.0)
    left, right = (attention_weights([at], at + around, score) for at in (1.0, 40.0))
    assert np.allclose(left, right, rtol=1e-10)
    assert known["largest_dense"] < 0.5 < 0.99 < known["largest_sparse"]
    dense, sparse = np.linspace(0.0, 1.0, 101), np.linspace(2.0, 6.0, 5)
    keys = np.concatenate([dense, sparse])[:, None]
    neighbours = {}
    for bandwidth in (0.2, "adaptive"):
        model = NadarayaWatsonRegressor(bandwidth=bandwidth).fit(keys, np.sin(keys[:, 0]))
        neighbours[bandwidth] = [1.0 / (weights**2).sum() for weights in model.attend([[0.5], [4.0]])]
    fixed, adaptive = neighbours.values()
    assert fixed[0] > 30.0 > 1.1 > fixed[1]
    assert adaptive[1] / adaptive[0] > 3.0 * fixed[1] / fixed[0]


def test_a_w_per_feature_helps_with_houses(known):
    assert known["houses_each"] < 0.6 * known["houses_one"]


def test_a_seed_repeats_the_numbers():
    def parameters() -> list[torch.Tensor]:
        torch.manual_seed(42)
        return list(AdditiveAttentionReg(1, 8).parameters())

    assert all(torch.equal(one, other) for one, other in zip(parameters(), parameters(), strict=True))


def test_shapes_of_the_additive_class():
    net = AdditiveAttentionReg(2, 8)
    output = net(torch.randn(4, 2), torch.randn(7, 2), torch.randn(7, 3))
    assert net.attention_weights.shape == (4, 7)
    assert net.attention_weights.unsqueeze(1).shape == (4, 1, 7)
    assert output.shape == (4, 3)
