// Executes a syntax tree: statements write text, expressions return values. One Interpreter per
// rendering; the tree and the Meter must outlive it. Throws Failure (meter.h).
//
// Scoping follows jinja2: a name set inside a `for`, macro or block is local to it; `if` has no
// scope. Only a namespace carries a value out of a loop. A macro sees the scope of its definition.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/template/ast.h"
#include "chat/template/value.h"

namespace weft::chat::jinja {

class Scope {
  public:
    explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}

    // The value of a name in this scope or an enclosing one; null if undefined.
    const Value* Find(Meter& meter, std::string_view name) const;
    // `name` must be a view into the syntax tree.
    void Set(std::string_view name, Value value);

  private:
    std::vector<std::pair<std::string_view, Value>> values_;
    std::shared_ptr<Scope> parent_;
};

// Evaluated arguments of a call.
struct CallValues {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> named;
};

class Interpreter {
  public:
    // context: dict of the template's variables. now_s: time for strftime_now(), in seconds since
    // 1970.
    Interpreter(Meter& meter, Value context, int64_t now_s);

    // Renders the whole template.
    Text Run(const Body& body);

    Meter& meter() { return meter_; }
    int64_t now_s() const { return now_s_; }

    // Evaluates a.name, a[key] and calls.
    Value Attribute(const Value& of, std::string_view name);
    Value Item(const Value& of, const Value& key);
    Value Call(const Value& callee, const CallValues& values);
    // Makes a namespace(), owned by the rendering.
    Value NewSpace();
    void SetInSpace(Space& space, std::string_view name, Value value);

    // Returns the value; fails if it is undefined.
    const Value& Defined(const Value& value);

  private:
    enum class Flow { kOn, kBreak, kContinue };
    class ScopeGuard;

    Flow Execute(const Body& body, TextBuilder& out);
    Flow Execute(const Statement& statement, TextBuilder& out);
    Flow Do(const TextOut& text, TextBuilder& out);
    Flow Do(const ValueOut& value, TextBuilder& out);
    Flow Do(const If& branch, TextBuilder& out);
    Flow Do(const For& loop, TextBuilder& out);
    Flow Do(const Set& set, TextBuilder& out);
    Flow Do(const SetBlock& set, TextBuilder& out);
    Flow Do(const FilterBlock& block, TextBuilder& out);
    Flow Do(const MacroStatement& macro, TextBuilder& out);
    Flow Do(const CallBlock& block, TextBuilder& out);
    Flow Do(const With& with, TextBuilder& out);
    Flow Do(const Break& statement, TextBuilder& out);
    Flow Do(const Continue& statement, TextBuilder& out);
    std::shared_ptr<const ListData> LoopItems(const For& loop);
    // Renders a body in its own scope and applies the filters.
    Value Captured(const Body& body, const std::vector<FilterExpr>& filters);
    void Assign(const Target& target, Value value);
    Value MacroOf(const MacroBody& body);

    Value Evaluate(const Expr& expr);
    Value Eval(const Constant& expr);
    Value Eval(const Name& expr);
    Value Eval(const ListExpr& expr);
    Value Eval(const DictExpr& expr);
    Value Eval(const AttributeExpr& expr);
    std::optional<Value> ChangeList(const CallExpr& expr);
    Value Eval(const ItemExpr& expr);
    Value Eval(const SliceExpr& expr);
    Value Eval(const CallExpr& expr);
    Value Eval(const FilterExpr& expr);
    Value Eval(const TestExpr& expr);
    Value Eval(const UnaryExpr& expr);
    Value Eval(const BinaryExpr& expr);
    Value Eval(const LogicExpr& expr);
    Value Eval(const CompareExpr& expr);
    Value Eval(const ConcatExpr& expr);
    Value Eval(const ConditionalExpr& expr);
    bool Compare(CompareOp op, const Value& left, const Value& right);
    CallValues EvaluateAll(const Arguments& arguments);
    Value Filtered(const FilterExpr& filter, const Value& of);
    Value CallMacro(const Macro& macro, const CallValues& values);
    Value LoopAttribute(const Loop& loop, std::string_view name);

    Meter& meter_;
    const Value context_;
    const int64_t now_s_;
    std::shared_ptr<Scope> scope_;
    std::vector<std::unique_ptr<Space>> spaces_;
};

}  // namespace weft::chat::jinja
