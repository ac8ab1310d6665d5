// Recursive-descent parser of template expressions; base class of the statement parser.
//
// Precedence from lowest: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary - +, then
// postfix: .name, [item], (call), |filter, is test.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template/ast.h"
#include "chat/template/lexer.h"

namespace weft::chat::jinja {

class ExpressionParser {
  public:
    explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    // conditional false: "a if b" ends before the `if`, as in the head of a `for`.
    ExprPtr Expression(bool conditional = true);
    // One expression, or a tuple of several separated by commas.
    ExprPtr Several(bool conditional = true);
    Arguments CallArguments();  // parses from "(" to ")"
    FilterExpr Filter();        // parses from the filter's name

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

    // Makes a node. `depth`: the depth of the node's deepest child.
    template <typename Node>
    ExprPtr Make(int line, int depth, Node node) const;

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int nesting_ = 0;
};

}  // namespace weft::chat::jinja
