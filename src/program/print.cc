// Prints a Program: one line per op, then the weights, states and inputs that it names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

#include "program/program.h"

namespace weft::program {
namespace {

const char* CutName(Cut cut) {
    switch (cut) {
        case Cut::kNone: return "none";
        case Cut::kRows: return "rows";
        case Cut::kColumns: return "columns";
    }
    return "";
}

const char* ScoreName(GateScore score) {
    switch (score) {
        case GateScore::kSoftmax: return "softmax";
        case GateScore::kSigmoid: return "sigmoid";
        case GateScore::kSqrtSoftplus: return "sqrt_softplus";
        case GateScore::kSparseMixer: return "sparse_mixer";
    }
    return "";
}

const char* GateName(RowGate gate) {
    switch (gate) {
        case RowGate::kSigmoid: return "sigmoid";
        case RowGate::kSoftplus: return "softplus";
        case RowGate::kProduct: return "product";
    }
    return "";
}

std::string SliceText(const Value& weight) {
    const WeightSlice& slice = weight.slice;
    const bool stack = weight.shape.rank == 3;
    return fmt::format("{}[{}{}:, {}:]", slice.name,
                       stack ? fmt::format("{}:, ", slice.first_matrix) : "", slice.row_begin,
                       slice.col_begin) +
           (slice.transposed ? " transposed" : "");
}

const char* GroupName(Group group) {
    switch (group) {
        case Group::kTensor: return "tensor";
        case Group::kPipeline: return "pipeline";
        case Group::kData: return "data";
        case Group::kTied: return "tied";
        case Group::kWorld: return "world";
    }
    return "";
}

std::string Text(float x) {
    return fmt::format("{:.6g}", x);
}
std::string Text(Cut cut) {
    return CutName(cut);
}
std::string Text(GateScore score) {
    return ScoreName(score);
}
std::string Text(RowGate gate) {
    return GateName(gate);
}
std::string Text(Group group) {
    return GroupName(group);
}
std::string Text(Activation activation) {
    return ActivationName(activation);
}
std::string Text(const ColumnRange& columns) {
    return fmt::format("{}+{}", columns.begin, columns.count);
}
std::string Text(const ElementRange& range) {
    return fmt::format("{}-{}", range.begin, range.end);
}
std::string Text(const UpdateRun& run) {
    return fmt::format("{}+{}{}", run.begin, run.count, run.decays ? "d" : "");
}
std::string Text(const FactoredRun& run) {
    return fmt::format("{}:{}-{}", run.tensor.number, run.range.begin, run.range.end);
}
template <typename T>
std::string Text(const T& x) {
    return fmt::format("{}", x);
}
std::string Text(const std::vector<int64_t>& parts) {  // parts of a whole
    return fmt::format("{}", fmt::join(parts, "+"));
}
template <typename T>
std::string Text(const std::vector<T>& all) {
    std::string text;
    for (const T& each : all) {
        if (!text.empty()) text += ',';
        text += Text(each);
    }
    return text;
}

// The attributes of an op as "key=value ...".
class AttributeText {
  public:
    template <typename T>
    void operator()(const char* name, const T& value) {
        Add(fmt::format("{}={}", name, Text(value)));
    }
    template <typename T>
    void Where(const char* name, const T& value) {
        if (value != T{}) (*this)(name, value);
    }
    void Flag(const char* name, bool value) {
        if (value) Add(name);
    }
    const std::string& text() const { return text_; }

  private:
    void Add(const std::string& word) {
        if (!text_.empty()) text_ += ' ';
        text_ += word;
    }
    std::string text_;
};

template <typename T>
std::string AttributesOf(const T& op) {
    AttributeText show;
    if constexpr (!std::is_empty_v<T>) op.Show(show);
    return show.text();
}

std::string NamesOf(const Program& program, const std::vector<ValueId>& ids) {
    std::string text;
    for (ValueId id : ids) {
        if (!text.empty()) text += ", ";
        text += program.value(id).name;
    }
    return text;
}

const char* StorageName(Storage storage) {
    switch (storage) {
        case Storage::kWeight: return "weight";
        case Storage::kActivation: return "activation";
        case Storage::kState: return "state";
        case Storage::kSlots: return "slots";
        case Storage::kInput: return "input";
        case Storage::kGradient: return "gradient";
        case Storage::kView: return "view";
        case Storage::kOptimizer: return "optimizer";
    }
    return "";
}

}  // namespace

std::string Print(const Program& program) {
    std::string text;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        text += fmt::format("{:4}  ", i);
        if (!op.outputs.empty()) {
            text += fmt::format("{} {} = ", NamesOf(program, op.outputs),
                                program.value(op.outputs[0]).shape.Text());
        }
        text += fmt::format("{}({})", OpName(op.kind()), NamesOf(program, op.inputs));
        const std::string attributes =
            op.attributes.Visit([](const auto& a) { return AttributesOf(a); });
        if (!attributes.empty()) text += "  " + attributes;
        text += '\n';
    }
    for (const Value& value : program.values) {
        if (value.storage == Storage::kActivation) continue;
        text += fmt::format("{} {} {} {}", StorageName(value.storage), value.name,
                            Info(value.dtype).name, value.shape.Text());
        if (value.storage == Storage::kWeight) {
            text += " = " + SliceText(value);
        } else if (value.storage == Storage::kView) {
            text += fmt::format(" = {} from {}", program.value(value.base).name, value.base_begin);
        }
        text += '\n';
    }
    return text;
}

}  // namespace weft::program
