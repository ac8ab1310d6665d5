// Interpreter: expressions.
#include <algorithm>

#include "chat/template/arguments.h"
#include "chat/template/arithmetic.h"
#include "chat/template/builtins.h"
#include "chat/template/interpreter.h"
#include "chat/template/print.h"
#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

// Python's slice of a sequence of `size` elements: the indices, in order.
struct SliceWalk {
    int64_t start, stop, step;

    bool Ends(int64_t at) const { return step > 0 ? at >= stop : at <= stop; }
};

int64_t ClampIndex(int64_t index, int64_t size, int64_t least, int64_t most) {
    if (index < 0) index = index < -size ? least : index + size;
    return std::clamp(index, least, most);
}

SliceWalk WalkOf(Meter& meter, const Value& start, const Value& stop, const Value& step,
                 int64_t size) {
    for (const Value* part : {&start, &stop, &step}) {
        if (part->IsInteger() || part->Is(Kind::kNone)) continue;
        meter.Fail(ErrorCode::kCorrupt, "a slice index is {}, expected an int", part->type_name());
    }
    SliceWalk walk{0, size, step.Is(Kind::kNone) ? 1 : step.integer()};
    if (walk.step == 0) meter.Fail(ErrorCode::kCorrupt, "the step of a slice is 0");
    // limits it to the sequence's length
    walk.step = std::clamp<int64_t>(walk.step, -size - 1, size + 1);
    const int64_t least = walk.step > 0 ? 0 : -1;
    const int64_t most = walk.step > 0 ? size : size - 1;
    if (walk.step < 0) walk = {size - 1, -1, walk.step};
    if (!start.Is(Kind::kNone)) walk.start = ClampIndex(start.integer(), size, least, most);
    if (!stop.Is(Kind::kNone)) walk.stop = ClampIndex(stop.integer(), size, least, most);
    return walk;
}

Value SliceText(Meter& meter, const Text& text, const SliceWalk& walk) {
    meter.Read(text.size());
    TextBuilder part(meter);
    const std::string_view bytes = text.view();
    if (walk.step == 1) {
        const size_t begin = PointOffset(bytes, static_cast<size_t>(walk.start));
        const auto count = static_cast<size_t>(std::max<int64_t>(walk.stop - walk.start, 0));
        const size_t end = begin + PointOffset(bytes.substr(begin), count);
        part.AppendCut(text, begin, end);
        return std::move(part).Finish();
    }
    for (int64_t at = walk.start; !walk.Ends(at); at += walk.step) {
        const size_t begin = PointOffset(bytes, static_cast<size_t>(at));
        meter.Read(begin);
        part.AppendCut(text, begin, NextPoint(bytes, begin));
    }
    return std::move(part).Finish();
}

}  // namespace

Value Interpreter::Evaluate(const Expr& expr) {
    const Level level(meter_);
    meter_.Step();
    meter_.line = expr.line;
    return std::visit([&](const auto& node) { return Eval(node); }, expr.node);
}

Value Interpreter::Eval(const Constant& expr) {
    return expr.value;
}

Value Interpreter::Eval(const Name& expr) {
    if (const Value* value = scope_->Find(meter_, expr.name)) return *value;
    if (const Value* value = Lookup(meter_, context_, expr.name)) return *value;
    if (IsFunction(expr.name)) return MakeMethod(Value(), expr.name);
    return Value(Undefined{expr.name});
}

Value Interpreter::Eval(const ListExpr& expr) {
    ListBuilder list(meter_);
    for (const ExprPtr& item : expr.items) list.Add(Evaluate(*item));
    return std::move(list).Finish(expr.tuple);
}

Value Interpreter::Eval(const DictExpr& expr) {
    DictBuilder dict(meter_);
    for (const auto& [key, value] : expr.entries) {
        const Value evaluated = Evaluate(*key);
        dict.Set(evaluated, Evaluate(*value));
    }
    return std::move(dict).Finish();
}

Value Interpreter::Eval(const AttributeExpr& expr) {
    return Attribute(Evaluate(*expr.of), expr.name);
}

Value Interpreter::Eval(const ItemExpr& expr) {
    const Value of = Evaluate(*expr.of);
    Value item = Item(of, Evaluate(*expr.key));
    const auto* key = std::get_if<Constant>(&expr.key->node);
    if (item.Is(Kind::kUndefined) && key != nullptr && key->value.Is(Kind::kText)) {
        return Value(Undefined{key->value.text().view()});
    }
    return item;
}

Value Interpreter::Eval(const SliceExpr& expr) {
    const Value of = Evaluate(*expr.of);
    const auto part = [&](const ExprPtr& index) {
        return index == nullptr ? Value(None{}) : Evaluate(*index);
    };
    const Value start = part(expr.start), stop = part(expr.stop), step = part(expr.step);
    Defined(of);
    if (!of.Is(Kind::kText) && !of.Is(Kind::kList)) return Value(Undefined{});
    const auto size = static_cast<int64_t>(Length(meter_, of));
    const SliceWalk walk = WalkOf(meter_, start, stop, step, size);
    if (of.Is(Kind::kText)) return SliceText(meter_, of.text(), walk);
    ListBuilder list(meter_);
    for (int64_t at = walk.start; !walk.Ends(at); at += walk.step) {
        meter_.Step();
        list.Add(of.items()[static_cast<size_t>(at)]);
    }
    return std::move(list).Finish(of.list()->tuple);
}

CallValues Interpreter::EvaluateAll(const Arguments& arguments) {
    CallValues values;
    for (const ExprPtr& each : arguments.positional) values.positional.push_back(Evaluate(*each));
    for (const auto& [name, each] : arguments.named) {
        values.named.emplace_back(name, Evaluate(*each));
    }
    return values;
}

// Handles `space.list.append(x)` and `.pop(i)` by giving the namespace a new list. nullopt: another
// kind of call; then only a name was evaluated.
std::optional<Value> Interpreter::ChangeList(const CallExpr& expr) {
    const auto* method = std::get_if<AttributeExpr>(&expr.callee->node);
    if (method == nullptr || (method->name != "append" && method->name != "pop")) return {};
    const auto* entry = std::get_if<AttributeExpr>(&method->of->node);
    if (entry == nullptr || !std::holds_alternative<Name>(entry->of->node)) return {};
    const Value owner = Evaluate(*entry->of);
    const Value list = owner.Is(Kind::kSpace) ? Attribute(owner, entry->name) : Value();
    if (!list.Is(Kind::kList) || list.list()->tuple) return {};
    const CallValues values = EvaluateAll(expr.arguments);
    const bool append = method->name == "append";
    const Bound bound(meter_, append ? "append()" : "pop()", values, append ? "object" : "index");
    const auto size = static_cast<int64_t>(list.items().size());
    int64_t taken = size;  // position to remove; append removes none
    if (!append) {
        const Value index = bound.Has(0) ? bound.At(0) : Value(int64_t{-1});
        if (!index.IsInteger()) meter_.Fail(ErrorCode::kCorrupt, "pop() of {}", index.type_name());
        taken = index.integer() + (index.integer() < 0 ? size : 0);
        if (taken < 0 || taken >= size)
            meter_.Fail(ErrorCode::kCorrupt, "pop(): the index is out of range");
    }
    ListBuilder changed(meter_);
    for (int64_t at = 0; at < size; ++at) {
        meter_.Step();
        if (at != taken) changed.Add(list.items()[static_cast<size_t>(at)]);
    }
    if (append) changed.Add(bound.Need(0));
    SetInSpace(owner.space(), entry->name, std::move(changed).Finish());
    return append ? Value(None{}) : list.items()[static_cast<size_t>(taken)];
}

Value Interpreter::Eval(const CallExpr& expr) {
    const int line = meter_.line;
    if (auto changed = ChangeList(expr)) return *std::move(changed);
    const Value callee = Evaluate(*expr.callee);
    const CallValues values = EvaluateAll(expr.arguments);
    meter_.line = line;
    return Call(callee, values);
}

Value Interpreter::Call(const Value& callee, const CallValues& values) {
    if (callee.Is(Kind::kMacro)) return CallMacro(callee.macro(), values);
    if (callee.Is(Kind::kMethod)) {
        const Method& method = callee.method();
        if (method.self.Is(Kind::kUndefined)) return CallFunction(*this, method.name, values);
        return CallMethod(*this, method.self, method.name, values);
    }
    Defined(callee);
    meter_.Fail(ErrorCode::kCorrupt, "{} is not callable", callee.type_name());
}

Value Interpreter::Filtered(const FilterExpr& filter, const Value& of) {
    const int line = meter_.line;
    const CallValues values = EvaluateAll(filter.arguments);
    meter_.line = line;
    return ApplyFilter(*this, filter.name, of, values);
}

Value Interpreter::Eval(const FilterExpr& expr) {
    return Filtered(expr, Evaluate(*expr.of));
}

Value Interpreter::Eval(const TestExpr& expr) {
    const Value of = Evaluate(*expr.of);
    return Value(ApplyTest(*this, expr.name, of, EvaluateAll(expr.arguments)));
}

Value Interpreter::Eval(const UnaryExpr& expr) {
    const Value of = Evaluate(*expr.of);
    switch (expr.op) {
        case UnaryOp::kNot: return Value(!of.truth());
        case UnaryOp::kMinus: return Negate(meter_, Defined(of));
        case UnaryOp::kPlus:
            if (!Defined(of).IsNumber()) {
                meter_.Fail(ErrorCode::kCorrupt, "'+' before {}", of.type_name());
            }
            return of.Is(Kind::kFloat) ? of : Value(of.integer());
    }
    return of;
}

Value Interpreter::Eval(const BinaryExpr& expr) {
    const int line = meter_.line;
    const Value left = Evaluate(*expr.left);
    const Value right = Evaluate(*expr.right);
    meter_.line = line;
    return Calculate(meter_, expr.op, Defined(left), Defined(right));
}

Value Interpreter::Eval(const LogicExpr& expr) {
    Value left = Evaluate(*expr.left);
    if (left.truth() != expr.is_and) return left;
    return Evaluate(*expr.right);
}

bool Interpreter::Compare(CompareOp op, const Value& left, const Value& right) {
    switch (op) {
        case CompareOp::kEqual: return Equal(meter_, left, right);
        case CompareOp::kNotEqual: return !Equal(meter_, left, right);
        case CompareOp::kLess: return Less(meter_, left, right);
        case CompareOp::kGreater: return Less(meter_, right, left);
        case CompareOp::kLessEqual: return Less(meter_, left, right) || Equal(meter_, left, right);
        case CompareOp::kGreaterEqual:
            return Less(meter_, right, left) || Equal(meter_, left, right);
        case CompareOp::kIn: return Contains(meter_, right, left);
        case CompareOp::kNotIn: return !Contains(meter_, right, left);
    }
    return false;
}

Value Interpreter::Eval(const CompareExpr& expr) {
    Value left = Evaluate(*expr.first);
    for (const auto& [op, operand] : expr.rest) {
        Value right = Evaluate(*operand);
        if (!Compare(op, left, right)) return Value(false);
        left = std::move(right);
    }
    return Value(true);
}

Value Interpreter::Eval(const ConcatExpr& expr) {
    TextBuilder text(meter_);
    for (const ExprPtr& part : expr.parts) AppendStr(text, Evaluate(*part));
    return std::move(text).Finish();
}

Value Interpreter::Eval(const ConditionalExpr& expr) {
    if (Evaluate(*expr.test).truth()) return Evaluate(*expr.then);
    return expr.otherwise == nullptr ? Value(Undefined{}) : Evaluate(*expr.otherwise);
}

Value Interpreter::LoopAttribute(const Loop& loop, std::string_view name) {
    const auto at = static_cast<int64_t>(loop.at);
    const auto size = static_cast<int64_t>(loop.items->items.size());
    if (name == "index") return Value(at + 1);
    if (name == "index0") return Value(at);
    if (name == "revindex") return Value(size - at);
    if (name == "revindex0") return Value(size - at - 1);
    if (name == "first") return Value(at == 0);
    if (name == "last") return Value(at + 1 == size);
    if (name == "length") return Value(size);
    // jinja2 counts recursive loops only, which are not supported.
    if (name == "depth") return Value(int64_t{1});
    if (name == "depth0") return Value(int64_t{0});
    if (name == "previtem") {
        return at == 0 ? Value(Undefined{"previtem"}) : loop.items->items[loop.at - 1];
    }
    if (name == "nextitem") {
        return at + 1 == size ? Value(Undefined{"nextitem"}) : loop.items->items[loop.at + 1];
    }
    if (name == "changed") {
        meter_.Fail(ErrorCode::kUnsupported, "loop.changed() is not supported");
    }
    return Value(Undefined{name});
}

Value Interpreter::Attribute(const Value& of, std::string_view name) {
    Defined(of);
    if (const Value part = of.part(); part.Is(Kind::kDict)) {
        if (const Value* value = Lookup(meter_, part, name)) return *value;
        if (name == "get") return Attribute(part, name);
    }
    const std::string_view method = MethodName(of, name);
    if (!method.empty()) return MakeMethod(of, method);
    if (of.Is(Kind::kLoop)) return LoopAttribute(of.loop(), name);
    if (of.Is(Kind::kSpace)) {
        meter_.Step(of.space().entries.size() / 16 + 1);
        for (const auto& [known, value] : of.space().entries) {
            if (known == name) return value;
        }
    }
    if (of.Is(Kind::kMacro) && name == "name") return MakeText(meter_, of.macro().body->name);
    if (of.Is(Kind::kDict)) {
        if (const Value* value = Lookup(meter_, of, name)) return *value;
    }
    return Value(Undefined{name});
}

Value Interpreter::Item(const Value& of, const Value& key) {
    Defined(of);
    if (of.Is(Kind::kDict)) {
        if (const Value* value = Lookup(meter_, of, key)) return *value;
    }
    if (of.Is(Kind::kText) && key.IsInteger()) return CharacterAt(meter_, of, key.integer());
    if (of.Is(Kind::kList) && key.IsInteger()) {
        const auto size = static_cast<int64_t>(of.items().size());
        const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
        return index < 0 || index >= size ? Value(Undefined{})
                                          : of.items()[static_cast<size_t>(index)];
    }
    if (!key.Is(Kind::kText)) return Value(Undefined{});
    const std::string_view name = MethodName(of, key.text().view());
    if (!name.empty()) return MakeMethod(of, name);
    if (of.Is(Kind::kDict)) return Value(Undefined{});
    Value value = Attribute(of, key.text().view());
    // drops the name, since the key may be temporary
    return value.Is(Kind::kUndefined) ? Value(Undefined{}) : value;
}

}  // namespace weft::chat::jinja
