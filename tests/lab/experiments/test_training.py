import pytest

from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.training import Callback, train

SMALL = {"model_options": {"depth": 3, "width": 16}, "activation": "tanh", "batch": 64, "epochs": 2}


def digits(**fields):
    return Training("mlp", "digits", **{"density": 0.5, **SMALL, **fields})


def without_times(metrics):
    curves = {name: curve for name, curve in metrics["curves"].items() if name != "seconds"}
    plain = {name: value for name, value in metrics.items() if "seconds" not in name and name != "curves"}
    return plain, curves


def test_a_training_is_that_of_the_lab_with_the_curves_of_its_epochs():
    reported = []
    metrics = digits().run(3, device="cpu", progress=lambda *state: reported.append(state))
    row = train(digits(), seed=3, device="cpu")
    assert metrics["test_accuracy"] == row["test_accuracy"]
    assert metrics["density"] == pytest.approx(0.5, abs=1e-3)
    assert metrics["diverged"] is False
    assert metrics["epochs"] == 2
    assert metrics["curves"]["loss"] == row["curves"]["loss"]
    assert set(metrics["curves"]) >= {"lr", "accuracy", "validation_accuracy", "gradient_norm", "seconds"}
    assert reported[0][1] == "epoch 1 of 2"
    assert all(0 < fraction <= 1 for fraction, _ in reported)


def test_fields_replace_the_recipe_and_the_rest_of_it_stays():
    recipe = digits(lr=0.5, gain=1.5).recipe
    assert (recipe.lr, recipe.gain, recipe.epochs, recipe.batch) == (0.5, 1.5, 2, 64)
    assert (recipe.momentum, recipe.dense_init) == (0.9, "orthogonal")
    other = Training("timm:resnet18", "cifar10", recipe="resnet32").recipe
    assert other.epochs == 200


def test_a_model_without_a_recipe_names_the_one_it_differs_least_from():
    training = Training("timm:resnet18", "cifar10", recipe="efficientnet_b0", lr=0.2)
    assert training.given()["recipe"] == training.described()["recipe"] == "efficientnet_b0"
    assert experiment_of(training.key()) == training
    assert Training("resnet32", "cifar10", recipe="vgg16c") == Training("resnet32", "cifar10")


def test_what_the_recipe_has_anyway_is_no_part_of_the_key():
    assert Training("resnet32", "cifar10", 0.1, epochs=200, lr=0.1) == Training("resnet32", "cifar10", 0.1)


def test_the_description_says_what_the_recipe_was():
    described = Training("resnet32", "cifar10", 0.1).described()
    assert (described["epochs"], described["lr"], described["dense_init"]) == (200, 0.1, "conv_orthogonal")
    assert described["activation"] is None


def test_an_interrupted_training_goes_on_from_its_checkpoint_to_the_same_end(tmp_path):
    class Stop(Callback):
        def on_step(self, state):
            if state.steps_done == 30:  # in the second epoch of 21 steps
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            digits(),
            seed=1,
            out=tmp_path,
            resume=True,
            logs=(),
            checkpoint_steps=8,
            device="cpu",
            callbacks=[Stop()],
        )
    resumed = digits().run(1, out=tmp_path, device="cpu")
    assert 0 < resumed["resumed_seconds"] < resumed["train_seconds"]
    assert without_times(resumed) == without_times(digits().run(1, device="cpu"))


def test_a_training_that_had_ended_before_its_row_was_kept_is_not_repeated(tmp_path):
    first = digits().run(1, out=tmp_path, device="cpu")
    reported = []
    again = digits().run(1, out=tmp_path, device="cpu", progress=lambda *state: reported.append(state))
    assert reported == []
    assert without_times(again) == without_times(first)


def test_a_loss_that_is_not_finite_is_a_result_without_an_accuracy():
    metrics = digits(lr=1e30, epochs=3).run(1, device="cpu")
    assert metrics["diverged"] is True
    assert metrics["diverged_epoch"] == 1
    assert "test_accuracy" not in metrics
    assert metrics["epochs"] == len(metrics["curves"].get("loss", []))


def test_an_unknown_name_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="scheme: expected one of"):
        digits(scheme="eio")


def test_the_price_grows_with_the_epochs():
    assert digits(epochs=4).cost() > digits(epochs=2).cost()
    assert Training("cnn1000", "cifar10").cost() > Training("resnet32", "cifar10").cost()


def test_the_label_names_the_start_also_where_it_is_the_usual_one():
    assert Training("resnet32", "cifar10", 0.1, epochs=3).label() == (
        "training resnet32 cifar10 density=0.1 erk eoi epochs=3"
    )
    assert Training("resnet32", "cifar10", scheme="base").label() == "training resnet32 cifar10"
