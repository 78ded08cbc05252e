"""A graph of standard ONNX operators, written as formulas: values have + − · / and the few functions used here.

    g = Graph()
    X = g.input("X", np.float64, ["n", 2])
    g.output("size", (X * X).sum(1).sqrt(), ["n", 1])
    model = g.model("doc", {})

All arithmetic is in float64. Constants are stored once, in the dtype they come in. A matrix product must not be
multiplied by a single number: onnxruntime puts the number into the product, and keeps it in single precision there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import regard

# Read by every onnxruntime since 1.14 (2023).
OPSET, IR_VERSION = 18, 8


class Graph:
    """Nodes and constants of one graph, or of the body of a loop in it."""

    def __init__(self, outer: Graph | None = None) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        # A body's constants are the whole graph's, and no two values have one name.
        self.constants: dict[Any, Any] = {} if outer is None else outer.constants
        self._names: list[str] = [] if outer is None else outer._names

    def constant(self, array: Any) -> Value:
        """A constant; float32 is stored as it is, and float64 from there on."""
        array = np.asarray(array)
        told = (array.dtype.str, array.shape, repr(array.tolist()) if array.dtype == object else array.tobytes())
        if told not in self.constants:
            self.constants[told] = numpy_helper.from_array(array, self._name("constant"))
        value = Value(self, self.constants[told].name)
        return value.cast(np.float64) if array.dtype == np.float32 else value

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Value:
        names = [self._lifted(one).name for one in inputs]
        self.nodes.append(helper.make_node(operator, names, [self._name(operator.lower())], **attributes))
        return Value(self, self.nodes[-1].output[0])

    def input(self, name: str, dtype: Any, shape: Sequence[Any], told: str = "") -> Value:
        self.inputs.append(helper.make_tensor_value_info(name, _code(dtype), shape, told))
        return Value(self, name)

    def output(self, name: str, value: Value, dtype: Any, shape: Sequence[Any] | None, told: str = "") -> None:
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, _code(dtype), shape, told))

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
        told = helper.make_graph(inner.nodes, self._name("body"), inner.inputs, inner.outputs)
        given = [self.constant(np.array(times, np.int64)), self.constant(np.array(True)), *state]
        self.nodes.append(helper.make_node("Loop", [one.name for one in given], names, body=told))
        return [Value(self, name) for name in names]

    @property
    def held(self) -> int:
        """Bytes of all constants."""
        return sum(constant.ByteSize() for constant in self.constants.values())

    def model(self, told: str, facts: Mapping[str, str]) -> Any:
        """The whole graph as an ONNX model, checked; what no output needs is left out."""
        needed, nodes = {output.name for output in self.outputs}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                nodes.append(node)
                bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
                for reader in (node, *(inner for body in bodies for inner in body.node)):
                    needed.update(reader.input)
        constants = [constant for constant in self.constants.values() if constant.name in needed]
        graph = helper.make_graph(nodes[::-1], "regard", self.inputs, self.outputs, constants, told)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="regard",
            producer_version=regard.__version__,
            doc_string=told,
        )
        helper.set_model_props(model, dict(facts))
        onnx.checker.check_model(model)
        return model

    def _lifted(self, one: Any) -> Value:
        return one if isinstance(one, Value) else self.constant(np.asarray(one, np.float64))

    def _name(self, what: str) -> str:
        self._names.append(what)
        return f"{what}_{len(self._names)}"


@dataclass(frozen=True)
class Value:
    """What one node gives; arithmetic with numbers and arrays makes constants of them."""

    graph: Graph
    name: str
    __array_ufunc__ = None  # array − value is a value's business

    def __add__(self, other: Any) -> Value:
        return self.graph.node("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.node("Sub", self, other)

    def __mul__(self, other: Any) -> Value:
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.node("Div", self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.node("MatMul", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.node("Sub", other, self)

    def __rtruediv__(self, other: Any) -> Value:
        return self.graph.node("Div", other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Value:
        return self.of("Neg")

    def __gt__(self, other: Any) -> Value:
        return self.graph.node("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.graph.node("GreaterOrEqual", self, other)

    def equals(self, other: Any) -> Value:
        return self.graph.node("Equal", self, other)

    def of(self, operator: str, **attributes: Any) -> Value:
        """An operator with this as its only input."""
        return self.graph.node(operator, self, **attributes)

    def sqrt(self) -> Value:
        return self.of("Sqrt")

    def least(self, *others: Any) -> Value:
        """The smaller one, entry by entry."""
        return self.graph.node("Min", self, *others)

    def most(self, *others: Any) -> Value:
        return self.graph.node("Max", self, *others)

    def where(self, yes: Any, no: Any) -> Value:
        """``yes`` where this is true."""
        return self.graph.node("Where", self, yes, no)

    def sum(self, axis: int) -> Value:
        return self._reduced("ReduceSum", axis)

    def max(self, axis: int) -> Value:
        return self._reduced("ReduceMax", axis)

    def min(self, axis: int) -> Value:
        return self._reduced("ReduceMin", axis)

    def take(self, where: Any, axis: int) -> Value:
        """Entries by number; ``where`` is a list, or a value of whole numbers."""
        numbers = where if isinstance(where, Value) else self.graph.constant(np.array(where, np.int64))
        return self.graph.node("Gather", self, numbers, axis=axis)

    def cast(self, dtype: Any) -> Value:
        return self.of("Cast", to=_code(dtype))

    def with_axis(self, axis: int) -> Value:
        return self.graph.node("Unsqueeze", self, self.graph.constant(np.array([axis])))

    def without_axis(self, axis: int) -> Value:
        return self.graph.node("Squeeze", self, self.graph.constant(np.array([axis])))

    def _reduced(self, operator: str, axis: int) -> Value:
        return self.graph.node(operator, self, self.graph.constant(np.array([axis])), keepdims=1)


def joined(values: Sequence[Value], axis: int) -> Value:
    """Values side by side."""
    return values[0].graph.node("Concat", *values, axis=axis)


def _code(dtype: Any) -> int:
    """ONNX's number for a dtype; text is one of them."""
    dtype = np.dtype(dtype)
    return int(TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype))
