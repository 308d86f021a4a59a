"""The loader: from a path to packed weights and a graph that can be reserved.

1. open: the GGUF file is parsed; nothing of its tensors is read.
2. describe: architecture and hyperparameters from the metadata.
3. check: missing, surplus, misshapen tensors and types EMEL cannot compute with are named; adapters must fit them.
4. pack: all weights at once, over the pool's lanes; within a budget that is too small for them, some are kept and the
   others streamed.
5. publish: the model. A failure at any step is one error value; what was opened is closed.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from emel.gguf import GgufFile, open_gguf
from emel.kernel.loading import load_packed
from emel.kernel.packing import PackedWeights, Vector
from emel.lazy_dataclasses import dataclass
from emel.model.errors import ModelError
from emel.model.extents import extents_of
from emel.model.merged import merged_matrices, tensors_in_file
from emel.model.registry import Architecture, Parameters, find_architecture, seen_tensors
from emel.model.tensors import Role, check_tensors, present
from emel.sm import Machine, Row

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from emel.gguf import Metadata, Scalar, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.pool import LanePool
    from emel.kernel.streaming import StreamedWeights
    from emel.model.adapters import AdapterChoice, Merge
    from emel.model.residency import Residency, WeightBudget


class State(Enum):
    """How far loading came."""

    IDLE = "idle"
    OPENED = "opened"
    DESCRIBED = "described"
    CHECKED = "checked"
    PLANNED = "planned"
    PACKED = "packed"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Load:
    """Load the model at `path`; `n_ctx` tokens of context will be used (None: as many as it was trained for).

    `overrides`: values of metadata that stand in place of the file's. `budget`: what the weights may take, once it is
    known what model it is (None: as much as they need). `adapters` are merged into them.
    """

    path: str | os.PathLike[str]
    n_ctx: int | None = None
    overrides: Mapping[str, Scalar] | None = None
    budget: Callable[[ModelDescription], WeightBudget] | None = None
    adapters: Sequence[AdapterChoice] = ()


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What a file says it is, before any weight is read."""

    file: GgufFile
    name: str  # of the architecture
    architecture: Architecture
    parameters: Parameters
    tensors: Mapping[str, TensorInfo]
    """The file's tensors as the architecture sees them: a tensor of several matrices is one for each of these."""
    merges: Mapping[str, Merge] = field(default_factory=dict)
    """What adapters add to tensors; `tensors` has the types these are kept in."""
    adapters: str = ""
    """A digest of all adapters; empty without."""


class LoadedModel:
    """A model with its weights in memory; `close` gives all of it back. A context manager."""

    def __init__(
        self,
        description: ModelDescription,
        weights: PackedWeights | StreamedWeights,
        residency: Residency | None = None,
    ) -> None:
        self.description = description
        self.weights = weights
        self.residency = residency
        """What is streamed; None when everything is in memory."""
        self.build: Callable[[], Graph] = self.build_of(description.parameters)

    def build_of(self, parameters: Parameters) -> Callable[[], Graph]:
        """What builds the graph with these hyperparameters in place of the file's."""
        build = partial(self.description.architecture.build, parameters, self.description.tensors)
        if self.residency is None:
            return build
        from emel.model.streamed import build_streamed  # noqa: PLC0415 - only what streams needs it

        return partial(build_streamed, build, self.residency)

    @property
    def parameters(self) -> Parameters:
        """The hyperparameters."""
        return self.description.parameters

    @property
    def metadata(self) -> Metadata:
        """The file's metadata; valid as long as it is held."""
        return self.description.file.metadata

    def close(self) -> None:
        """Gives weights and file back; no plan may use them any more. Harmless when repeated."""
        self.weights.close()
        self.description.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(slots=True)
class LoaderContext:
    """What the load has so far, and how it ended."""

    pool: LanePool
    file: GgufFile | None = None
    description: ModelDescription | None = None
    residency: Residency | None = None
    weights: PackedWeights | StreamedWeights | None = None
    model: LoadedModel | None = None
    error: Exception | None = None


def has_failed(context: LoaderContext, _event: Load) -> bool:
    """The last step left an error."""
    return context.error is not None


def open_file(context: LoaderContext, event: Load) -> None:
    """Maps and parses the file."""
    try:
        context.file = open_gguf(event.path, overrides=event.overrides)
    except (OSError, ValueError) as error:
        context.error = error


def describe(context: LoaderContext, _event: Load) -> None:
    """Reads the architecture and its hyperparameters."""
    assert context.file is not None
    try:
        context.description = describe_file(context.file)
    except ValueError as error:
        context.error = error


def check(context: LoaderContext, event: Load) -> None:
    """Compares the tensors with what the architecture expects, and with adapters."""
    assert context.description is not None
    try:
        context.description = _checked(context.description, event.adapters)
    except (OSError, ValueError) as error:
        context.error = error


def has_budget(_context: LoaderContext, event: Load) -> bool:
    """The weights may not take what they need."""
    return event.budget is not None


def is_streamed(context: LoaderContext, _event: Load) -> bool:
    """Some weights do not stay in memory."""
    return context.residency is not None and not context.residency.is_resident


def plan_weights(context: LoaderContext, event: Load) -> None:
    """Chooses what stays in memory."""
    from emel.model.streamed import choose_residency  # noqa: PLC0415 - only what streams needs it

    assert context.description is not None
    assert event.budget is not None
    try:
        context.residency = choose_residency(context.description, event.budget(context.description))
    except ValueError as error:
        context.error = error


def stream_weights(context: LoaderContext, event: Load) -> None:
    """Packs what stays and starts to stream the rest."""
    from emel.model.streamed import open_streamed  # noqa: PLC0415 - only what streams needs it

    assert context.description is not None
    assert context.residency is not None
    try:
        context.weights = open_streamed(context.description, context.residency, context.pool, event.n_ctx)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        context.error = error


def pack_weights(context: LoaderContext, event: Load) -> None:
    """Packs every weight into one buffer."""
    assert context.description is not None
    try:
        context.weights = _pack(context.description, context.pool, event.n_ctx)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        context.error = error


def publish(context: LoaderContext, _event: Load) -> None:
    """The model is whole."""
    assert context.description is not None
    assert context.weights is not None
    residency = None if isinstance(context.weights, PackedWeights) else context.residency
    context.model = LoadedModel(context.description, context.weights, residency)


def close_file(context: LoaderContext, _event: Load) -> None:
    """Gives up what a failed load had opened."""
    if context.file is not None:
        context.file.close()


class LoaderMachine(Machine[State, LoaderContext]):
    """Loads one model, once: `context.model`, or `context.error`."""

    INITIAL = State.IDLE
    TERMINAL = frozenset({State.READY, State.FAILED})
    FAILED = frozenset({State.FAILED})
    TABLE = (
        #   source           event guard        effect          destination
        Row(State.IDLE,      Load, None,        open_file,      State.OPENED),
        Row(State.OPENED,    None, has_failed,  close_file,     State.FAILED),
        Row(State.OPENED,    None, None,        describe,       State.DESCRIBED),
        Row(State.DESCRIBED, None, has_failed,  close_file,     State.FAILED),
        Row(State.DESCRIBED, None, None,        check,          State.CHECKED),
        Row(State.CHECKED,   None, has_failed,  close_file,     State.FAILED),
        Row(State.CHECKED,   None, has_budget,  plan_weights,   State.PLANNED),
        Row(State.CHECKED,   None, None,        pack_weights,   State.PACKED),
        Row(State.PLANNED,   None, has_failed,  close_file,     State.FAILED),
        Row(State.PLANNED,   None, is_streamed, stream_weights, State.PACKED),
        Row(State.PLANNED,   None, None,        pack_weights,   State.PACKED),
        Row(State.PACKED,    None, has_failed,  close_file,     State.FAILED),
        Row(State.PACKED,    None, None,        publish,        State.READY),
    )  # fmt: skip


def load_model(
    path: str | os.PathLike[str],
    pool: LanePool,
    *,
    n_ctx: int | None = None,
    overrides: Mapping[str, Scalar] | None = None,
    budget: Callable[[ModelDescription], WeightBudget] | None = None,
    adapters: Sequence[AdapterChoice] = (),
) -> LoadedModel:
    """Loads a model for `n_ctx` tokens of context (None: as many as it was trained for), with metadata overridden.

    `budget` says what the weights may take, once it is known what model it is; they are streamed when they need more.
    `adapters` are merged into the weights, in their order.

    Raises SourceError, GgufError, MetadataError, ModelError or MemoryError, one line each.
    """
    context = LoaderContext(pool)
    LoaderMachine(context).dispatch(Load(path, n_ctx, overrides, budget, adapters))
    if context.model is None:
        assert context.error is not None
        raise context.error
    return context.model


def describe_file(file: GgufFile) -> ModelDescription:
    """Architecture and hyperparameters of an open file; MetadataError or ModelError."""
    name = file.metadata.get_str("general.architecture")
    architecture = find_architecture(name)
    parameters = architecture.read_parameters(file.metadata, file.tensors)
    return ModelDescription(file, name, architecture, parameters, seen_tensors(architecture, parameters, file.tensors))


def describe_adapted(file: GgufFile, adapters: Sequence[AdapterChoice]) -> ModelDescription:
    """The model of an open file with adapters, as `load_model` loads it; MetadataError or ModelError."""
    return _checked(describe_file(file), adapters)


def check_description(description: ModelDescription) -> None:
    """ModelError unless the file has the tensors its architecture expects."""
    expected = description.architecture.expected_tensors(description.parameters)
    check_tensors(expected, description.tensors, description.name)


def _checked(description: ModelDescription, adapters: Sequence[AdapterChoice]) -> ModelDescription:
    check_description(description)
    return _adapted(description, adapters) if adapters else description


def _adapted(description: ModelDescription, choices: Sequence[AdapterChoice]) -> ModelDescription:
    from emel.model.adapters import adapt  # noqa: PLC0415 - few models have adapters, and NumPy takes time to import

    adapted = adapt(choices, description.name, description.file, description.tensors)
    expected = description.architecture.expected_tensors(description.parameters)
    matrices = {each.name for each in expected if each.role is Role.MATRIX}
    if others := adapted.merges.keys() - matrices:
        raise ModelError(f"an adapter changes tensor {min(others)!r}: only matrices can be changed")
    return replace(description, tensors=adapted.tensors, merges=adapted.merges, adapters=adapted.digest)


def _pack(description: ModelDescription, pool: LanePool, n_ctx: int | None) -> PackedWeights:
    """Reads are the only way to weights: a mapping would end the process when the file shrinks."""
    file, tensors, architecture = description.file, description.tensors, description.architecture
    parameters = description.parameters
    file.prefetch()
    derived = architecture.derived_vectors(parameters, file, min(n_ctx or parameters.n_ctx, parameters.n_ctx))
    extents = extents_of(description)
    with file.open_reader(tensors_in_file(description)) as reader:
        vectors = [
            Vector(info.name, info.type, info.n_values, reader.read(info.name))
            for info in present(architecture.expected_tensors(parameters), tensors, Role.VECTOR)
        ]
        read = [extent for extent in extents.values() if extent.name not in description.merges]
        computed = merged_matrices(description, extents, reader)
        return load_packed(pool, reader.opened, read, [*vectors, *derived], computed=computed)
