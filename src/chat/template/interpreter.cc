#include "chat/template/interpreter.h"

#include <algorithm>

#include "chat/template/print.h"

namespace weft::chat::jinja {

const Value* Scope::Find(Meter& meter, std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
        meter.Step(scope->values_.size() / 16 + 1);
        for (const auto& [known, value] : scope->values_) {
            if (known == name) return &value;
        }
    }
    return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
    for (auto& [known, old] : values_) {
        if (known != name) continue;
        old = std::move(value);
        return;
    }
    values_.emplace_back(name, std::move(value));
}

// Enters a scope inside `parent` and restores the previous one.
class Interpreter::ScopeGuard {
  public:
    ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> parent)
        : interpreter_(interpreter), before_(interpreter.scope_) {
        interpreter_.scope_ = std::make_shared<Scope>(std::move(parent));
    }
    explicit ScopeGuard(Interpreter& interpreter) : ScopeGuard(interpreter, interpreter.scope_) {}
    ~ScopeGuard() { interpreter_.scope_ = std::move(before_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

  private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> before_;
};

Interpreter::Interpreter(Meter& meter, Value context, int64_t now_s)
    : meter_(meter),
      context_(std::move(context)),
      now_s_(now_s),
      scope_(std::make_shared<Scope>(nullptr)) {}

Text Interpreter::Run(const Body& body) {
    TextBuilder out(meter_);
    Execute(body, out);
    return out.text();
}

const Value& Interpreter::Defined(const Value& value) {
    if (value.Is(Kind::kUndefined)) {
        const std::string_view name = value.undefined_name();
        meter_.Fail(ErrorCode::kCorrupt, "'{}' is undefined", name.empty() ? "an item" : name);
    }
    return value;
}

Value Interpreter::NewSpace() {
    spaces_.push_back(std::make_unique<Space>(Space{{}, Charge(&meter_)}));
    spaces_.back()->charge.Add(sizeof(Space));
    return Value(spaces_.back().get());
}

void Interpreter::SetInSpace(Space& space, std::string_view name, Value value) {
    meter_.Step(space.entries.size() / 16 + 1);
    for (auto& [known, old] : space.entries) {
        if (known != name) continue;
        old = std::move(value);
        return;
    }
    space.charge.Add(sizeof(Entry) + name.size());
    space.entries.emplace_back(std::string(name), std::move(value));
}

Interpreter::Flow Interpreter::Execute(const Body& body, TextBuilder& out) {
    const Level level(meter_);
    for (const Statement& statement : body) {
        const Flow flow = Execute(statement, out);
        if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement, TextBuilder& out) {
    meter_.line = statement.line;
    meter_.Step();
    return std::visit([&](const auto& node) { return Do(node, out); }, statement.node);
}

Interpreter::Flow Interpreter::Do(const TextOut& text, TextBuilder& out) {
    out.Append(text.text.text());
    meter_.CheckOutput(out.text().size());
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Do(const ValueOut& value, TextBuilder& out) {
    AppendStr(out, Evaluate(*value.value));
    meter_.CheckOutput(out.text().size());
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Do(const If& branch, TextBuilder& out) {
    for (const auto& [test, body] : branch.branches) {
        if (Evaluate(*test).truth()) return Execute(body, out);
    }
    return Execute(branch.otherwise, out);
}

std::shared_ptr<const ListData> Interpreter::LoopItems(const For& loop) {
    std::shared_ptr<const ListData> items = Iterate(meter_, Evaluate(*loop.iterable));
    if (loop.filter == nullptr) return items;
    ListBuilder kept(meter_);
    for (const Value& item : items->items) {
        const ScopeGuard scope(*this);
        Assign(loop.target, item);
        if (Evaluate(*loop.filter).truth()) kept.Add(item);
    }
    return std::move(kept).Finish().list();
}

Interpreter::Flow Interpreter::Do(const For& loop, TextBuilder& out) {
    const std::shared_ptr<const ListData> items = LoopItems(loop);
    if (items->items.empty()) {
        const ScopeGuard scope(*this);
        return Execute(loop.otherwise, out);
    }
    for (size_t at = 0; at < items->items.size(); ++at) {
        const ScopeGuard scope(*this);
        scope_->Set("loop", Value(std::make_shared<const Loop>(Loop{items, at})));
        Assign(loop.target, items->items[at]);
        meter_.Step();
        if (Execute(loop.body, out) == Flow::kBreak) break;
    }
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Do(const Set& set, TextBuilder&) {
    Assign(set.target, Evaluate(*set.value));
    return Flow::kOn;
}

Value Interpreter::Captured(const Body& body, const std::vector<FilterExpr>& filters) {
    TextBuilder text(meter_);
    {
        const ScopeGuard scope(*this);
        Execute(body, text);
    }
    Value value = std::move(text).Finish();
    for (const FilterExpr& filter : filters) value = Filtered(filter, value);
    return value;
}

Interpreter::Flow Interpreter::Do(const SetBlock& set, TextBuilder&) {
    Assign(set.target, Captured(set.body, set.filters));
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Do(const FilterBlock& block, TextBuilder& out) {
    AppendStr(out, Captured(block.body, block.filters));
    return Flow::kOn;
}

Value Interpreter::MacroOf(const MacroBody& body) {
    return Value(std::make_shared<const Macro>(Macro{&body, scope_}));
}

Interpreter::Flow Interpreter::Do(const MacroStatement& macro, TextBuilder&) {
    scope_->Set(macro.macro->name, MacroOf(*macro.macro));
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Do(const CallBlock& block, TextBuilder& out) {
    const auto& call = std::get<CallExpr>(block.call->node);
    const Value callee = Evaluate(*call.callee);
    CallValues values = EvaluateAll(call.arguments);
    values.named.emplace_back("caller", MacroOf(*block.caller));
    AppendStr(out, Call(callee, values));
    return Flow::kOn;
}

Interpreter::Flow Interpreter::Do(const With& with, TextBuilder& out) {
    std::vector<Value> values;
    for (const auto& [target, value] : with.values) values.push_back(Evaluate(*value));
    const ScopeGuard scope(*this);
    for (size_t i = 0; i < values.size(); ++i) Assign(with.values[i].first, values[i]);
    return Execute(with.body, out);
}

Interpreter::Flow Interpreter::Do(const Break&, TextBuilder&) {
    return Flow::kBreak;
}

Interpreter::Flow Interpreter::Do(const Continue&, TextBuilder&) {
    return Flow::kContinue;
}

void Interpreter::Assign(const Target& target, Value value) {
    if (!target.parts.empty()) {
        const auto items = Iterate(meter_, Defined(value));
        if (items->items.size() != target.parts.size()) {
            meter_.Fail(ErrorCode::kCorrupt, "cannot unpack {} values to {} names",
                        items->items.size(), target.parts.size());
        }
        for (size_t i = 0; i < target.parts.size(); ++i) Assign(target.parts[i], items->items[i]);
        return;
    }
    if (target.attribute.empty()) return scope_->Set(target.name, std::move(value));
    const Value* space = scope_->Find(meter_, target.name);
    if (space == nullptr || !space->Is(Kind::kSpace)) {
        meter_.Fail(ErrorCode::kCorrupt, "'{}.{}' is assigned, but '{}' is not a namespace",
                    target.name, target.attribute, target.name);
    }
    SetInSpace(space->space(), target.attribute, std::move(value));
}

Value Interpreter::CallMacro(const Macro& macro, const CallValues& values) {
    const std::shared_ptr<Scope> around = macro.scope.lock();
    if (around == nullptr) {
        meter_.Fail(ErrorCode::kUnsupported, "macro '{}' was called outside of its block",
                    macro.body->name);
    }
    const auto& parameters = macro.body->parameters;
    if (values.positional.size() > parameters.size()) {
        meter_.Fail(ErrorCode::kCorrupt, "macro '{}' takes {} arguments, got {}", macro.body->name,
                    parameters.size(), values.positional.size());
    }
    const ScopeGuard scope(*this, around);
    for (size_t i = 0; i < parameters.size(); ++i) {
        const std::string& name = parameters[i].first;
        const ExprPtr& fallback = parameters[i].second;
        const auto named = std::find_if(values.named.begin(), values.named.end(),
                                        [&](const auto& each) { return each.first == name; });
        if (i < values.positional.size()) {
            scope_->Set(name, values.positional[i]);
        } else if (named != values.named.end()) {
            scope_->Set(name, named->second);
        } else {
            scope_->Set(name, fallback ? Evaluate(*fallback) : Value(Undefined{name}));
        }
    }
    for (const auto& named : values.named) {
        const std::string_view name = named.first;
        const bool known = std::any_of(parameters.begin(), parameters.end(),
                                       [&](const auto& each) { return each.first == name; });
        if (!known && name != "caller") {
            meter_.Fail(ErrorCode::kCorrupt, "macro '{}' has no parameter '{}'", macro.body->name,
                        name);
        }
        if (!known) scope_->Set("caller", named.second);
    }
    TextBuilder text(meter_);
    Execute(macro.body->body, text);
    return std::move(text).Finish();
}

}  // namespace weft::chat::jinja
