#include "chat/template/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace weft::chat::jinja {
namespace {

constexpr int kMostNesting = 100;

int Deepest(std::initializer_list<const Expr*> children) {
    int depth = 0;
    for (const Expr* child : children) {
        if (child != nullptr) depth = std::max(depth, child->depth);
    }
    return depth;
}

int Deepest(const std::vector<ExprPtr>& children) {
    int depth = 0;
    for (const ExprPtr& child : children) depth = std::max(depth, child->depth);
    return depth;
}

int Deepest(const Arguments& arguments) {
    int depth = Deepest(arguments.positional);
    for (const auto& [name, value] : arguments.named) depth = std::max(depth, value->depth);
    return depth;
}

}  // namespace

void ExpressionParser::Fail(const std::string& message) const {
    throw Failure{
        MakeError(ErrorCode::kCorrupt, "chat template, line {}: {}", current().line, message)};
}

void ExpressionParser::Unsupported(const std::string& what) const {
    throw Failure{MakeError(ErrorCode::kUnsupported, "chat template, line {}: {} is not supported",
                            current().line, what)};
}

Token ExpressionParser::Next() {
    Token token = tokens_[at_];
    if (token.kind != TokenKind::kEnd) ++at_;
    return token;
}

bool ExpressionParser::AtName(std::string_view name) const {
    return current().kind == TokenKind::kName && current().text == name;
}

bool ExpressionParser::AtOperator(std::string_view op) const {
    return current().kind == TokenKind::kOperator && current().text == op;
}

bool ExpressionParser::SkipName(std::string_view name) {
    if (!AtName(name)) return false;
    Next();
    return true;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
    if (!AtOperator(op)) return false;
    Next();
    return true;
}

void ExpressionParser::NeedOperator(std::string_view op) {
    if (!SkipOperator(op)) {
        Fail(fmt::format("expected '{}', found '{}'", op, current().text.substr(0, 40)));
    }
}

std::string ExpressionParser::NeedName() {
    if (current().kind != TokenKind::kName) {
        Fail(fmt::format("expected a name, found '{}'", current().text.substr(0, 40)));
    }
    return Next().text;
}

template <typename Node>
ExprPtr ExpressionParser::Make(int line, int depth, Node node) const {
    if (depth >= kMostDepth) {
        Fail(fmt::format("expressions nest deeper than {} levels", kMostDepth));
    }
    return std::make_unique<Expr>(Expr{line, depth + 1, std::move(node)});
}

ExprPtr ExpressionParser::Expression(bool conditional) {
    if (++nesting_ > kMostNesting) Fail("expressions nest too deeply");
    ExprPtr expr = Or();
    while (conditional && AtName("if")) {
        const int line = Next().line;
        ExprPtr test = Or();
        ExprPtr otherwise = SkipName("else") ? Expression() : nullptr;
        const int depth = Deepest({test.get(), expr.get(), otherwise.get()});
        expr = Make(line, depth,
                    ConditionalExpr{std::move(test), std::move(expr), std::move(otherwise)});
    }
    --nesting_;
    return expr;
}

bool ExpressionParser::EndsSeveral(bool conditional) const {
    const TokenKind kind = current().kind;
    return kind == TokenKind::kBlockEnd || kind == TokenKind::kVariableEnd || AtOperator(")") ||
           AtOperator("=") || (!conditional && (AtName("if") || AtName("recursive")));
}

ExprPtr ExpressionParser::Several(bool conditional) {
    const int line = current().line;
    ExprPtr first = Expression(conditional);
    if (!AtOperator(",")) return first;
    ListExpr tuple;
    tuple.tuple = true;
    tuple.items.push_back(std::move(first));
    while (SkipOperator(",") && !EndsSeveral(conditional)) {
        tuple.items.push_back(Expression(conditional));
    }
    const int depth = Deepest(tuple.items);
    return Make(line, depth, std::move(tuple));
}

ExprPtr ExpressionParser::Or() {
    ExprPtr left = And();
    while (AtName("or")) {
        const int line = Next().line;
        ExprPtr right = And();
        const int depth = Deepest({left.get(), right.get()});
        left = Make(line, depth, LogicExpr{false, std::move(left), std::move(right)});
    }
    return left;
}

ExprPtr ExpressionParser::And() {
    ExprPtr left = Not();
    while (AtName("and")) {
        const int line = Next().line;
        ExprPtr right = Not();
        const int depth = Deepest({left.get(), right.get()});
        left = Make(line, depth, LogicExpr{true, std::move(left), std::move(right)});
    }
    return left;
}

ExprPtr ExpressionParser::Not() {
    if (!AtName("not")) return Compare();
    if (++nesting_ > kMostNesting) Fail("expressions nest too deeply");
    const int line = Next().line;
    ExprPtr of = Not();
    --nesting_;
    const int depth = of->depth;
    return Make(line, depth, UnaryExpr{UnaryOp::kNot, std::move(of)});
}

std::optional<CompareOp> ExpressionParser::SkipComparison() {
    static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
        {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
        {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
        {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual},
    };
    for (const auto& [text, op] : kOps) {
        if (SkipOperator(text)) return op;
    }
    if (SkipName("in")) return CompareOp::kIn;
    const Token& after = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (AtName("not") && after.kind == TokenKind::kName && after.text == "in") {
        Next();
        Next();
        return CompareOp::kNotIn;
    }
    return {};
}

ExprPtr ExpressionParser::Compare() {
    const int line = current().line;
    ExprPtr first = Sum();
    int depth = first->depth;
    CompareExpr compare;
    while (const auto op = SkipComparison()) {
        compare.rest.emplace_back(*op, Sum());
        depth = std::max(depth, compare.rest.back().second->depth);
    }
    if (compare.rest.empty()) return first;
    compare.first = std::move(first);
    return Make(line, depth, std::move(compare));
}

ExprPtr ExpressionParser::Sum() {
    ExprPtr left = Concat();
    while (AtOperator("+") || AtOperator("-")) {
        const Token token = Next();
        const BinaryOp op = token.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
        ExprPtr right = Concat();
        const int depth = Deepest({left.get(), right.get()});
        left = Make(token.line, depth, BinaryExpr{op, std::move(left), std::move(right)});
    }
    return left;
}

ExprPtr ExpressionParser::Concat() {
    const int line = current().line;
    ExprPtr first = Product();
    if (!AtOperator("~")) return first;
    ConcatExpr concat;
    concat.parts.push_back(std::move(first));
    while (SkipOperator("~")) concat.parts.push_back(Product());
    const int depth = Deepest(concat.parts);
    return Make(line, depth, std::move(concat));
}

ExprPtr ExpressionParser::Product() {
    static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
        {"*", BinaryOp::kMultiply},
        {"/", BinaryOp::kDivide},
        {"//", BinaryOp::kFloorDivide},
        {"%", BinaryOp::kModulo},
    };
    ExprPtr left = Power();
    for (;;) {
        const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                      [&](const auto& each) { return AtOperator(each.first); });
        if (op == std::end(kOps)) return left;
        const int line = Next().line;
        ExprPtr right = Power();
        const int depth = Deepest({left.get(), right.get()});
        left = Make(line, depth, BinaryExpr{op->second, std::move(left), std::move(right)});
    }
}

ExprPtr ExpressionParser::Power() {
    ExprPtr left = Unary(true);
    while (AtOperator("**")) {
        const int line = Next().line;
        ExprPtr right = Unary(true);
        const int depth = Deepest({left.get(), right.get()});
        left = Make(line, depth, BinaryExpr{BinaryOp::kPower, std::move(left), std::move(right)});
    }
    return left;
}

ExprPtr ExpressionParser::Unary(bool with_filter) {
    if (++nesting_ > kMostNesting) Fail("expressions nest too deeply");
    ExprPtr expr;
    if (AtOperator("-") || AtOperator("+")) {
        const Token token = Next();
        ExprPtr of = Unary(false);
        const int depth = of->depth;
        const UnaryOp op = token.text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus;
        expr = Make(token.line, depth, UnaryExpr{op, std::move(of)});
    } else {
        expr = Primary();
    }
    expr = Postfix(std::move(expr));
    if (with_filter) expr = FiltersAndTests(std::move(expr));
    --nesting_;
    return expr;
}

ExprPtr ExpressionParser::NameOrConstant() {
    Token token = Next();
    const std::string& name = token.text;
    Value value;
    if (name == "true" || name == "True") {
        value = Value(true);
    } else if (name == "false" || name == "False") {
        value = Value(false);
    } else if (name == "none" || name == "None") {
        value = Value(None{});
    } else {
        return Make(token.line, 0, Name{std::move(token.text)});
    }
    return Make(token.line, 0, Constant{std::move(value)});
}

ExprPtr ExpressionParser::Number() {
    const Token token = Next();
    if (token.kind == TokenKind::kFloat) {
        return Make(token.line, 0, Constant{Value(std::strtod(token.text.c_str(), nullptr))});
    }
    int64_t number = 0;
    const char* end = token.text.data() + token.text.size();
    const auto read = std::from_chars(token.text.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end) Unsupported("an integer above 2^63");
    return Make(token.line, 0, Constant{Value(number)});
}

ExprPtr ExpressionParser::Primary() {
    const Token& token = current();
    if (token.kind == TokenKind::kName) return NameOrConstant();
    if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return Number();
    if (token.kind == TokenKind::kString) {
        const int line = token.line;
        std::string text;
        while (current().kind == TokenKind::kString) text += Next().text;
        return Make(line, 0, Constant{MakeConstant(std::move(text))});
    }
    if (AtOperator("[")) return ListLiteral();
    if (AtOperator("{")) return DictLiteral();
    if (AtOperator("(")) {
        const int line = Next().line;
        ListExpr empty;
        empty.tuple = true;
        if (SkipOperator(")")) return Make(line, 0, std::move(empty));
        ExprPtr inner = Several();
        NeedOperator(")");
        return inner;
    }
    Fail(fmt::format("expected an expression, found '{}'", token.text.substr(0, 40)));
}

ExprPtr ExpressionParser::ListLiteral() {
    const int line = Next().line;
    ListExpr list;
    while (!AtOperator("]")) {
        list.items.push_back(Expression());
        if (!SkipOperator(",")) break;
    }
    NeedOperator("]");
    const int depth = Deepest(list.items);
    return Make(line, depth, std::move(list));
}

ExprPtr ExpressionParser::DictLiteral() {
    const int line = Next().line;
    DictExpr dict;
    int depth = 0;
    while (!AtOperator("}")) {
        ExprPtr key = Expression();
        NeedOperator(":");
        ExprPtr value = Expression();
        depth = std::max(depth, Deepest({key.get(), value.get()}));
        dict.entries.emplace_back(std::move(key), std::move(value));
        if (!SkipOperator(",")) break;
    }
    NeedOperator("}");
    return Make(line, depth, std::move(dict));
}

ExprPtr ExpressionParser::Postfix(ExprPtr expr) {
    for (;;) {
        const int line = current().line;
        if (AtOperator(".") || AtOperator("[")) {
            expr = Subscript(std::move(expr));
        } else if (AtOperator("(")) {
            expr = Call(line, std::move(expr));
        } else {
            return expr;
        }
    }
}

ExprPtr ExpressionParser::Call(int line, ExprPtr callee) {
    Arguments arguments = CallArguments();
    const int depth = std::max(callee->depth, Deepest(arguments));
    return Make(line, depth, CallExpr{std::move(callee), std::move(arguments)});
}

ExprPtr ExpressionParser::Subscript(ExprPtr expr) {
    const Token token = Next();
    if (token.text == ".") {
        const int depth = expr->depth;
        if (current().kind == TokenKind::kInteger) {
            ExprPtr index = Number();
            return Make(token.line, depth, ItemExpr{std::move(expr), std::move(index)});
        }
        return Make(token.line, depth, AttributeExpr{std::move(expr), NeedName()});
    }
    SliceExpr slice;
    ExprPtr* const parts[] = {&slice.start, &slice.stop, &slice.step};
    size_t part = 0;
    for (; part < 3; ++part) {
        if (!AtOperator(":") && !AtOperator("]")) *parts[part] = Expression();
        if (!SkipOperator(":")) break;
    }
    if (AtOperator(",")) Unsupported("an index of several values");
    NeedOperator("]");
    const int depth = Deepest({expr.get(), slice.start.get(), slice.stop.get(), slice.step.get()});
    if (part == 0) {
        if (slice.start == nullptr) Fail("an index is empty");
        return Make(token.line, depth, ItemExpr{std::move(expr), std::move(slice.start)});
    }
    slice.of = std::move(expr);
    return Make(token.line, depth, std::move(slice));
}

Arguments ExpressionParser::CallArguments() {
    Arguments arguments;
    NeedOperator("(");
    while (!AtOperator(")")) {
        if (AtOperator("*") || AtOperator("**")) Unsupported("a call with * or **");
        const Token& after = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
        const bool named = current().kind == TokenKind::kName &&
                           after.kind == TokenKind::kOperator && after.text == "=";
        if (named) {
            std::string name = NeedName();
            Next();
            arguments.named.emplace_back(std::move(name), Expression());
        } else {
            if (!arguments.named.empty()) Fail("a positional argument follows a named one");
            arguments.positional.push_back(Expression());
        }
        if (!SkipOperator(",")) break;
    }
    NeedOperator(")");
    return arguments;
}

FilterExpr ExpressionParser::Filter() {
    FilterExpr filter;
    filter.name = NeedName();
    while (SkipOperator(".")) filter.name.append(".").append(NeedName());
    if (AtOperator("(")) filter.arguments = CallArguments();
    return filter;
}

ExprPtr ExpressionParser::FiltersAndTests(ExprPtr expr) {
    for (;;) {
        const int line = current().line;
        if (SkipOperator("|")) {
            FilterExpr filter = Filter();
            const int depth = std::max(expr->depth, Deepest(filter.arguments));
            filter.of = std::move(expr);
            expr = Make(line, depth, std::move(filter));
        } else if (SkipName("is")) {
            expr = Test(std::move(expr));
        } else if (AtOperator("(")) {
            expr = Call(line, std::move(expr));
        } else {
            return expr;
        }
    }
}

bool ExpressionParser::BeginsTestArgument() const {
    switch (current().kind) {
        case TokenKind::kName:
            return !AtName("else") && !AtName("or") && !AtName("and") && !AtName("if") &&
                   !AtName("is") && !AtName("in") && !AtName("not");
        case TokenKind::kString:
        case TokenKind::kInteger:
        case TokenKind::kFloat: return true;
        case TokenKind::kOperator: return AtOperator("[") || AtOperator("{");
        case TokenKind::kData:
        case TokenKind::kBlockBegin:
        case TokenKind::kBlockEnd:
        case TokenKind::kVariableBegin:
        case TokenKind::kVariableEnd:
        case TokenKind::kEnd: return false;
    }
    return false;
}

ExprPtr ExpressionParser::Test(ExprPtr expr) {
    const int line = current().line;
    const bool negated = SkipName("not");
    TestExpr test;
    test.name = NeedName();
    if (AtOperator("(")) {
        test.arguments = CallArguments();
    } else if (BeginsTestArgument()) {
        test.arguments.positional.push_back(Postfix(Primary()));
    }
    const int depth = std::max(expr->depth, Deepest(test.arguments));
    test.of = std::move(expr);
    ExprPtr made = Make(line, depth, std::move(test));
    if (!negated) return made;
    const int inner = made->depth;
    return Make(line, inner, UnaryExpr{UnaryOp::kNot, std::move(made)});
}

}  // namespace weft::chat::jinja
