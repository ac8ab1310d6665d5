// Parses the rows of ops.h at compile time: an invalid row does not compile.
#include "program/ops.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace weft::program {
namespace {

constexpr size_t kMostOperands = 16;

struct Signature {
    std::array<Operand, kMostOperands> operands{};  // inputs, then outputs
    size_t inputs = 0, outputs = 0;
    std::span<const Operand> in() const { return {operands.data(), inputs}; }
    std::span<const Operand> out() const { return {operands.data() + inputs, outputs}; }
};

class Reader {
  public:
    constexpr explicit Reader(std::string_view text) : left_(text) {}

    constexpr Signature Read(bool exact) {
        Signature signature;
        bool is_output = false;
        while (!left_.empty()) {
            if (Take(" ")) continue;
            if (Take("->")) {
                is_output = true;
            } else if (Take("(")) {
                group_ = ++groups_;
            } else if (Take(")")) {
                group_ = 0;
            } else {
                Operand operand = ReadOperand(is_output);
                operand.exact = operand.exact || exact;
                signature.operands.at(signature.inputs + signature.outputs) = operand;
                ++(is_output ? signature.outputs : signature.inputs);
            }
        }
        return signature;
    }

  private:
    constexpr bool Take(std::string_view text) {
        if (!left_.starts_with(text)) return false;
        left_.remove_prefix(text.size());
        return true;
    }
    // Evaluated only at compile time; a failure is a compile error.
    constexpr static void Need(bool good) {
        if (!good) WEFT_CHECK(!"a row of ops.h that can be read");
    }

    constexpr Operand ReadOperand(bool is_output) {
        Operand operand;
        operand.group = group_;
        operand.access = is_output ? Access::kWrite : Access::kRead;
        const size_t end = left_.find_first_of("*[");
        Need(end != left_.npos && end > 0);
        operand.name = left_.substr(0, end);
        left_.remove_prefix(end);
        operand.many = Take("*");
        Need(Take("["));
        while (!Take("]")) {
            if (operand.rank > 0) Need(Take(","));
            operand.dims.at(static_cast<size_t>(operand.rank++)) = left_.at(0);
            if (!Take("..")) left_.remove_prefix(1);
        }
        while (Take(":")) ReadFlag(operand);
        if (Take("+=")) operand.access = Access::kAdd;
        return operand;
    }

    constexpr void ReadFlag(Operand& operand) {
        constexpr std::pair<std::string_view, bool Operand::*> kFlags[] = {
            {"i32", &Operand::index},     {"f64", &Operand::wide},      {"state", &Operand::state},
            {"spent", &Operand::spent},   {"weight", &Operand::weight}, {"exact", &Operand::exact},
            {"chosen", &Operand::chosen}, {"narrow", &Operand::narrow}, {"part", &Operand::part},
            {"slots", &Operand::slots}};
        for (const auto& [name, flag] : kFlags) {
            if (!Take(name)) continue;
            operand.*flag = true;
            return;
        }
        Need(false);
    }

    std::string_view left_;
    int group_ = 0, groups_ = 0;
};

#define WEFT_ROW(name) name::kRow,
constexpr std::array<OpRow, kOpKinds> kRows = {WEFT_OPS(WEFT_ROW)};
#undef WEFT_ROW

constexpr std::array<Signature, kOpKinds> ReadAll() {
    std::array<Signature, kOpKinds> all;
    for (size_t i = 0; i < kOpKinds; ++i)
        all[i] = Reader(kRows[i].operands).Read(kRows[i].Is(Trait::kExact));
    return all;
}
constexpr std::array<Signature, kOpKinds> kSignatures = ReadAll();

constexpr bool NamesAreUnique() {
    for (size_t i = 0; i < kOpKinds; ++i) {
        for (size_t j = 0; j < i; ++j) {
            if (std::string_view(kRows[i].name) == kRows[j].name) return false;
        }
    }
    return true;
}
static_assert(NamesAreUnique());

// Whether the attributes state that an optional operand is present.
std::optional<bool> Has(const Op& op, std::string_view operand) {
    return op.attributes.Visit([&](const auto& a) -> std::optional<bool> {
        if constexpr (requires { a.Has(operand); }) return a.Has(operand);
        return std::nullopt;
    });
}

// Appends `count` operands as in `listed` to `found`. Returns false if the count does not match.
bool Assign(const Op& op, std::span<const Operand> listed, size_t count,
            std::vector<const Operand*>& found) {
    size_t certain = 0, open = 0;
    const auto has = [&](const Operand& operand) {
        return operand.group == 0 ? std::optional(true) : Has(op, operand.name);
    };
    for (const Operand& operand : listed) {
        const std::optional<bool> there = has(operand);
        certain += there.value_or(false) ? 1 : 0;
        open += there.has_value() ? 0 : 1;
    }
    if (count < certain) return false;
    const size_t left = count - certain;
    bool more = left == 0;  // whether an operand takes the remaining inputs
    for (const Operand& operand : listed) {
        if (!has(operand).value_or(left == open)) continue;
        found.push_back(&operand);
        if (!operand.many) continue;
        found.insert(found.end(), left, &operand);
        more = true;
    }
    return more || left == open;
}

}  // namespace

const OpRow& RowOf(OpKind kind) {
    return kRows[static_cast<size_t>(kind)];
}

const char* OpName(OpKind kind) {
    return RowOf(kind).name;
}

std::optional<Operands> OperandsOf(const Op& op) {
    const Signature& signature = kSignatures[static_cast<size_t>(op.kind())];
    Operands operands;
    if (!Assign(op, signature.out(), op.outputs.size(), operands.outputs)) return std::nullopt;
    std::vector<const Operand*> added;
    for (const Operand* output : operands.outputs) {
        if (output->access == Access::kAdd) added.push_back(output);
    }
    if (op.inputs.size() < added.size()) return std::nullopt;
    const size_t inputs = op.inputs.size() - added.size();
    if (!Assign(op, signature.in(), inputs, operands.inputs)) return std::nullopt;
    operands.inputs.insert(operands.inputs.end(), added.begin(), added.end());
    return operands;
}

bool IsOfExperts(const Op& op) {
    const Signature& signature = kSignatures[static_cast<size_t>(op.kind())];
    return std::ranges::any_of(signature.operands, &Operand::chosen);
}

ValueId Adapt::PartOf(const std::vector<ValueId>& inputs, size_t i, Part part) const {
    size_t at = of_outputs ? 2 : 1;
    for (size_t before = 0; before < i; ++before) {
        at += static_cast<size_t>(std::popcount(parts[before]));
    }
    const auto lower = static_cast<uint8_t>(parts[i] & (part - 1));
    return (parts[i] & part) == 0 ? kNoValue : inputs[at + std::popcount(lower)];
}

std::optional<size_t> WeightInput(OpKind kind) {
    const std::span<const Operand> inputs = kSignatures[static_cast<size_t>(kind)].in();
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].weight) return i;
    }
    return std::nullopt;
}

}  // namespace weft::program
