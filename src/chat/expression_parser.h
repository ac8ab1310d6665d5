// The expressions of a template, by recursive descent; the parser of statements builds on it.
//
// From loose to tight: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary - +, then
// what follows an operand: .name, [item], (call), |filter, is test.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/ast.h"
#include "chat/lexer.h"

namespace weft::chat::jinja {

class ExpressionParser {
  public:
    explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    // `conditional` off: "a if b" ends before the if, as in the head of a for.
    ExprPtr Expression(bool conditional = true);
    // One expression, or several with commas between: a tuple.
    ExprPtr Several(bool conditional = true);
    Arguments CallArguments();  // from "(" to ")"
    FilterExpr Filter();        // from the filter's name

    const Token& current() const { return tokens_[at_]; }
    Token Next();
    bool AtName(std::string_view name) const;
    bool AtOperator(std::string_view op) const;
    bool SkipName(std::string_view name);
    bool SkipOperator(std::string_view op);
    void NeedOperator(std::string_view op);
    std::string NeedName();
    [[noreturn]] void Fail(const std::string& message) const;
    [[noreturn]] void Unsupported(const std::string& what) const;

  private:
    ExprPtr Or();
    ExprPtr And();
    ExprPtr Not();
    ExprPtr Compare();
    std::optional<CompareOp> SkipComparison();
    ExprPtr Sum();
    ExprPtr Concat();
    ExprPtr Product();
    ExprPtr Power();
    ExprPtr Unary(bool with_filter);
    ExprPtr Primary();
    ExprPtr NameOrConstant();
    ExprPtr Number();
    ExprPtr ListLiteral();
    ExprPtr DictLiteral();
    ExprPtr Postfix(ExprPtr expr);
    ExprPtr FiltersAndTests(ExprPtr expr);
    ExprPtr Subscript(ExprPtr expr);
    ExprPtr Call(int line, ExprPtr callee);
    ExprPtr Test(ExprPtr expr);
    bool BeginsTestArgument() const;
    bool EndsSeveral(bool conditional) const;

    // A node above children of which the deepest has `depth`.
    template <typename Node>
    ExprPtr Make(int line, int depth, Node node) const;

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int nesting_ = 0;
};

}  // namespace weft::chat::jinja
