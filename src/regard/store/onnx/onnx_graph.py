"""A graph of standard ONNX operators, written as formulas over ``Value``: arithmetic and the functions used here.

    g = Graph()
    X = g.input("X", np.float64, ["n", 2])
    g.output("size", (X * X).sum(1).sqrt(), np.float64, ["n", 1])
    model = g.model("doc", {})

All arithmetic is in float64. Constants are stored once, in the dtype they come in. A matrix product must not be
multiplied by a single number: onnxruntime fuses the number into the product, in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import regard

# Supported by every onnxruntime since 1.14 (2023).
OPSET = 18
IR_VERSION = 8


class Graph:
    """Nodes and constants of one graph, or of the body of a loop in it."""

    def __init__(self, outer: Graph | None = None) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        # A body shares the constants of the whole graph, and names are unique in all of it.
        self.constants: dict[Any, Any] = {} if outer is None else outer.constants
        self._names: list[str] = [] if outer is None else outer._names

    def constant(self, array: Any) -> Value:
        """A constant; float32 is stored as such and cast to float64."""
        array = np.asarray(array)
        content = (array.dtype.str, array.shape, repr(array.tolist()) if array.dtype == object else array.tobytes())
        if content not in self.constants:
            self.constants[content] = numpy_helper.from_array(array, self._name("constant"))
        value = Value(self, self.constants[content].name)
        return value.cast(np.float64) if array.dtype == np.float32 else value

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Value:
        """The output of an operator; inputs that are no values become float64 constants."""
        values = [one if isinstance(one, Value) else self.constant(np.asarray(one, np.float64)) for one in inputs]
        names = [value.name for value in values]
        self.nodes.append(helper.make_node(operator, names, [self._name(operator.lower())], **attributes))
        return Value(self, self.nodes[-1].output[0])

    def input(self, name: str, dtype: Any, shape: Sequence[Any], description: str = "") -> Value:
        self.inputs.append(helper.make_tensor_value_info(name, _type_code(dtype), shape, description))
        return Value(self, name)

    def output(self, name: str, value: Value, dtype: Any, shape: Sequence[Any] | None, description: str = "") -> None:
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, _type_code(dtype), shape, description))

    def loop(self, times: int, state: Sequence[Value], body: Callable[..., Sequence[Value]]) -> list[Value]:
        """The state after ``times`` steps; ``body(graph, step, *state)`` gives the next one, all in float64."""
        inner = Graph(self)
        step = inner.input(self._name("step"), np.int64, [])
        going = inner.input(self._name("going"), np.bool_, [])
        before = [inner.input(self._name("state"), np.float64, None) for _ in state]  # type: ignore[arg-type]
        after = body(inner, step, *before)
        inner.output(self._name("going"), going, np.bool_, [])
        for value in after:
            inner.output(self._name("next"), value, np.float64, None)
        names = [self._name("loop") for _ in state]
        inner_graph = helper.make_graph(inner.nodes, self._name("body"), inner.inputs, inner.outputs)
        given = [self.constant(np.array(times, np.int64)), self.constant(np.array(True)), *state]
        self.nodes.append(helper.make_node("Loop", [one.name for one in given], names, body=inner_graph))
        return [Value(self, name) for name in names]

    @property
    def nbytes(self) -> int:
        """Bytes of all constants."""
        return sum(constant.ByteSize() for constant in self.constants.values())

    def model(self, description: str, metadata: Mapping[str, str]) -> Any:
        """The whole graph as a validated ONNX model, without nodes that no output needs."""
        needed, nodes = {output.name for output in self.outputs}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                nodes.append(node)
                bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
                for reader in (node, *(inner for body in bodies for inner in body.node)):
                    needed.update(reader.input)
        constants = [constant for constant in self.constants.values() if constant.name in needed]
        graph = helper.make_graph(nodes[::-1], "regard", self.inputs, self.outputs, constants, description)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="regard",
            producer_version=regard.__version__,
            doc_string=description,
        )
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        return model

    def _name(self, what: str) -> str:
        self._names.append(what)
        return f"{what}_{len(self._names)}"


def _binary(operator: str, *, swapped: bool = False) -> Callable[[Value, Any], Value]:
    """A method that applies an operator to a value and something else, in this order or swapped."""
    return lambda self, other: self.graph.node(operator, *((other, self) if swapped else (self, other)))


def _reduction(operator: str) -> Callable[[Value, int], Value]:
    """A method that reduces one axis to length 1."""
    return lambda self, axis: self.graph.node(operator, self, self.graph.constant(np.array([axis])), keepdims=1)


@dataclass(frozen=True)
class Value:
    """The output of one node; arithmetic with numbers and arrays turns them into constants."""

    graph: Graph
    name: str
    __array_ufunc__ = None  # numpy leaves array − value to this class

    __add__ = __radd__ = _binary("Add")
    __mul__ = __rmul__ = _binary("Mul")
    __sub__, __rsub__ = _binary("Sub"), _binary("Sub", swapped=True)
    __truediv__, __rtruediv__ = _binary("Div"), _binary("Div", swapped=True)
    __matmul__, __rmatmul__ = _binary("MatMul"), _binary("MatMul", swapped=True)
    __gt__, __ge__ = _binary("Greater"), _binary("GreaterOrEqual")
    equals, minimum, maximum = _binary("Equal"), _binary("Min"), _binary("Max")
    sum, max, min = _reduction("ReduceSum"), _reduction("ReduceMax"), _reduction("ReduceMin")

    def of(self, operator: str, **attributes: Any) -> Value:
        """An operator with this as its only input."""
        return self.graph.node(operator, self, **attributes)

    def sqrt(self) -> Value:
        return self.of("Sqrt")

    def where(self, yes: Any, no: Any) -> Value:
        """``yes`` where this is true, else ``no``."""
        return self.graph.node("Where", self, yes, no)

    def take(self, index: Any, axis: int) -> Value:
        """Entries by number; ``index`` is a list, or a value of integers."""
        numbers = index if isinstance(index, Value) else self.graph.constant(np.array(index, np.int64))
        return self.graph.node("Gather", self, numbers, axis=axis)

    def cast(self, dtype: Any) -> Value:
        return self.of("Cast", to=_type_code(dtype))

    def with_axis(self, axis: int) -> Value:
        return self.graph.node("Unsqueeze", self, self.graph.constant(np.array([axis])))

    def without_axis(self, axis: int) -> Value:
        return self.graph.node("Squeeze", self, self.graph.constant(np.array([axis])))


def concatenate(values: Sequence[Value], axis: int) -> Value:
    """Values side by side along an axis."""
    return values[0].graph.node("Concat", *values, axis=axis)


def _type_code(dtype: Any) -> int:
    """ONNX's number of a dtype, text included."""
    dtype = np.dtype(dtype)
    return int(TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype))
