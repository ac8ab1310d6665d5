// Syntax tree of a template. The tree is immutable after parsing, and all renderings share it.
//
// Every node has its line number. The depth is at most kMostDepth, so recursion is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chat/template/value.h"

namespace weft::chat::jinja {

inline constexpr int kMostDepth = 300;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
    std::vector<ExprPtr> positional;
    std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Constant {
    Value value;
};
struct Name {
    std::string name;
};
struct ListExpr {
    std::vector<ExprPtr> items;
    bool tuple = false;
};
struct DictExpr {
    std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct AttributeExpr {  // a.b
    ExprPtr of;
    std::string name;
};
struct ItemExpr {  // a[b]
    ExprPtr of, key;
};
struct SliceExpr {  // a[start:stop:step]; each part may be null
    ExprPtr of, start, stop, step;
};
struct CallExpr {
    ExprPtr callee;
    Arguments arguments;
};
struct FilterExpr {
    ExprPtr of;  // null in a filter block, which filters the block's text
    std::string name;
    Arguments arguments;
};
struct TestExpr {
    ExprPtr of;
    std::string name;
    Arguments arguments;
};
enum class UnaryOp { kNot, kMinus, kPlus };
struct UnaryExpr {
    UnaryOp op;
    ExprPtr of;
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr {
    BinaryOp op;
    ExprPtr left, right;
};
struct LogicExpr {
    bool is_and;
    ExprPtr left, right;
};
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareExpr {
    ExprPtr first;
    std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConcatExpr {  // a ~ b ~ c
    std::vector<ExprPtr> parts;
};
struct ConditionalExpr {            // `then if test else otherwise`
    ExprPtr test, then, otherwise;  // otherwise may be null
};

struct Expr {
    int line = 0;
    int depth = 1;
    std::variant<Constant, Name, ListExpr, DictExpr, AttributeExpr, ItemExpr, SliceExpr, CallExpr,
                 FilterExpr, TestExpr, UnaryExpr, BinaryExpr, LogicExpr, CompareExpr, ConcatExpr,
                 ConditionalExpr>
        node;
};

// Target of an assignment: a name, an attribute of a namespace, or several targets.
struct Target {
    std::string name;
    std::string attribute;      // empty: assigns the name itself
    std::vector<Target> parts;  // not empty: targets of the value's items
};

struct Statement;
using Body = std::vector<Statement>;

struct MacroBody {
    std::string name;
    std::vector<std::pair<std::string, ExprPtr>> parameters;  // default value, or null
    Body body;
};

struct TextOut {
    Value text;
};
struct ValueOut {
    ExprPtr value;
};
struct If {
    std::vector<std::pair<ExprPtr, Body>> branches;
    Body otherwise;
};
struct For {
    Target target;
    ExprPtr iterable, filter;  // filter may be null
    Body body, otherwise;
};
struct Set {
    Target target;
    ExprPtr value;
};
struct SetBlock {
    Target target;
    std::vector<FilterExpr> filters;
    Body body;
};
struct FilterBlock {
    std::vector<FilterExpr> filters;
    Body body;
};
struct MacroStatement {
    std::unique_ptr<const MacroBody> macro;
};
struct CallBlock {
    std::unique_ptr<const MacroBody> caller;
    ExprPtr call;
};
struct With {
    std::vector<std::pair<Target, ExprPtr>> values;
    Body body;
};
struct Break {};
struct Continue {};

struct Statement {
    int line = 0;
    std::variant<TextOut, ValueOut, If, For, Set, SetBlock, FilterBlock, MacroStatement, CallBlock,
                 With, Break, Continue>
        node;
};

}  // namespace weft::chat::jinja
