import pytest

from orthosparse.lab.experiments.parameter_count import ParameterCount


@pytest.mark.parametrize(
    ("model", "data", "prunable", "parameters"),
    [
        ("resnet32", "cifar10", 464_432, 466_906),
        ("resnet110", "cifar10", 1_722_416, 1_730_714),
        ("vgg16c", "cifar10", 11_307_712, 11_323_466),
        ("mlp", "mnist", 129_400, 130_010),
    ],
)
def test_counts_are_those_of_the_released_networks(model, data, prunable, parameters):
    metrics = ParameterCount(model, data).run(1)
    assert (metrics["prunable"], metrics["parameters"]) == (prunable, parameters)
    assert metrics["kept"] == round(0.1 * prunable)


@pytest.mark.torchvision
def test_a_network_of_timm_is_counted_without_its_weights():
    assert ParameterCount("efficientnet_b0", "tiny_imagenet").run(1)["kept"] == 421_219


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="data: expected one of cifar10"):
        ParameterCount("resnet32", "cifar")
    with pytest.raises(ValueError, match="model: expected one of"):
        ParameterCount("resnet33", "cifar10").run(1)
