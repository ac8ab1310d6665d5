#include "chat/template/parser.h"

#include <algorithm>
#include <utility>

#include "chat/template/expression_parser.h"

namespace weft::chat::jinja {
namespace {

constexpr int kMostBlocks = 60;        // nesting
constexpr int kMostTargetNesting = 8;  // (a, (b, c))

class Parser {
  public:
    explicit Parser(std::string_view source) : in_(Lex(source)) {}

    Body Template() {
        Body body = Statements({});
        if (in_.current().kind != TokenKind::kEnd) in_.Fail("a block ends that was not opened");
        return body;
    }

  private:
    // Parses to the end of the template or to a tag named in `ends`; the tag's name is not
    // consumed.
    Body Statements(std::initializer_list<std::string_view> ends) {
        if (++nesting_ > kMostBlocks) in_.Fail("blocks nest too deeply");
        Body body;
        for (;;) {
            const Token token = in_.Next();
            if (token.kind == TokenKind::kEnd) {
                if (ends.size() > 0) in_.Fail(fmt::format("'{}' is missing", *ends.begin()));
                break;
            }
            if (token.kind == TokenKind::kData) {
                body.push_back({token.line, TextOut{MakeConstant(token.text)}});
            } else if (token.kind == TokenKind::kVariableBegin) {
                body.push_back({token.line, ValueOut{in_.Several()}});
                End(TokenKind::kVariableEnd);
            } else {
                const auto at = [&](std::string_view name) { return in_.AtName(name); };
                if (std::any_of(ends.begin(), ends.end(), at)) break;
                Tag(token.line, body);
            }
        }
        --nesting_;
        return body;
    }

    void End(TokenKind kind) {
        if (in_.current().kind != kind) {
            in_.Fail(fmt::format("expected the end of the tag, found '{}'",
                                 in_.current().text.substr(0, 40)));
        }
        in_.Next();
    }
    void EndTag() { End(TokenKind::kBlockEnd); }

    // Parses a tag after {% and adds its statement to `body`.
    void Tag(int line, Body& body) {
        const std::string name = in_.NeedName();
        if (name == "if") return body.push_back({line, IfTag()});
        if (name == "for") return body.push_back({line, ForTag()});
        if (name == "set") return SetTag(line, body);
        if (name == "macro") return body.push_back({line, MacroTag()});
        if (name == "call") return body.push_back({line, CallTag()});
        if (name == "filter") return body.push_back({line, FilterTag()});
        if (name == "with") return body.push_back({line, WithTag()});
        if (name == "generation") {  // marks the assistant's text for training
            EndTag();
            return body.push_back({line, With{{}, Block("endgeneration")}});
        }
        if (name == "break" || name == "continue") {
            if (loops_ == 0) in_.Fail(fmt::format("'{}' is outside of a for loop", name));
            EndTag();
            if (name == "break") return body.push_back({line, Break{}});
            return body.push_back({line, Continue{}});
        }
        static constexpr std::string_view kKnown[] = {
            "include", "import", "from", "extends", "block", "do", "trans", "autoescape", "debug"};
        if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) {
            in_.Unsupported(fmt::format("the tag '{}'", name));
        }
        in_.Fail(fmt::format("unexpected tag '{}'", name.substr(0, 40)));
    }

    // Parses a body through the tag `end`.
    Body Block(std::string_view end) {
        Body body = Statements({end});
        in_.Next();
        EndTag();
        return body;
    }

    If IfTag() {
        If made;
        for (;;) {
            ExprPtr test = in_.Several(false);
            EndTag();
            Body body = Statements({"endif", "elif", "else"});
            made.branches.emplace_back(std::move(test), std::move(body));
            const std::string next = in_.NeedName();
            if (next == "elif") continue;
            EndTag();
            if (next == "else") made.otherwise = Block("endif");
            return made;
        }
    }

    For ForTag() {
        For made;
        made.target = Targets(0);
        if (!in_.SkipName("in")) in_.Fail("expected 'in'");
        made.iterable = in_.Several(false);
        if (in_.SkipName("if")) made.filter = in_.Expression();
        if (in_.AtName("recursive")) in_.Unsupported("a recursive for");
        EndTag();
        ++loops_;
        made.body = Statements({"endfor", "else"});
        --loops_;
        const bool otherwise = in_.NeedName() == "else";
        EndTag();
        if (otherwise) made.otherwise = Block("endfor");
        return made;
    }

    // One target, or several separated by commas.
    Target Targets(int nesting) {
        if (nesting > kMostTargetNesting) in_.Fail("targets nest too deeply");
        Target first = OneTarget(nesting);
        if (!in_.AtOperator(",")) return first;
        Target all;
        all.parts.push_back(std::move(first));
        while (in_.SkipOperator(",")) {
            if (in_.AtName("in") || in_.AtOperator("=") || in_.AtOperator(")")) break;
            all.parts.push_back(OneTarget(nesting));
        }
        return all;
    }

    Target OneTarget(int nesting) {
        Target target;
        if (in_.SkipOperator("(")) {
            target = Targets(nesting + 1);
            in_.NeedOperator(")");
            return target;
        }
        target.name = in_.NeedName();
        if (in_.SkipOperator(".")) target.attribute = in_.NeedName();
        return target;
    }

    void SetTag(int line, Body& body) {
        Target target = Targets(0);
        if (in_.SkipOperator("=")) {
            body.push_back({line, Set{std::move(target), in_.Several()}});
            return EndTag();
        }
        std::vector<FilterExpr> filters;
        while (in_.SkipOperator("|")) filters.push_back(in_.Filter());
        EndTag();
        body.push_back({line, SetBlock{std::move(target), std::move(filters), Outside("endset")}});
    }

    // A body of its own, which break and continue cannot leave.
    Body Outside(std::string_view end) {
        const int loops = std::exchange(loops_, 0);
        Body body = Block(end);
        loops_ = loops;
        return body;
    }

    void Parameters(MacroBody& macro) {
        in_.NeedOperator("(");
        while (!in_.AtOperator(")")) {
            std::string name = in_.NeedName();
            ExprPtr value = in_.SkipOperator("=") ? in_.Expression() : nullptr;
            if (value == nullptr && !macro.parameters.empty() && macro.parameters.back().second) {
                in_.Fail("a parameter without a default follows one with a default");
            }
            macro.parameters.emplace_back(std::move(name), std::move(value));
            if (!in_.SkipOperator(",")) break;
        }
        in_.NeedOperator(")");
    }

    MacroStatement MacroTag() {
        auto macro = std::make_unique<MacroBody>();
        macro->name = in_.NeedName();
        Parameters(*macro);
        EndTag();
        macro->body = Outside("endmacro");
        return {std::move(macro)};
    }

    CallBlock CallTag() {
        auto caller = std::make_unique<MacroBody>();
        caller->name = "caller";
        if (in_.AtOperator("(")) Parameters(*caller);
        ExprPtr call = in_.Expression();
        if (!std::holds_alternative<CallExpr>(call->node))
            in_.Fail("'call' must be followed by a call");
        EndTag();
        caller->body = Outside("endcall");
        return {std::move(caller), std::move(call)};
    }

    FilterBlock FilterTag() {
        FilterBlock made;
        made.filters.push_back(in_.Filter());
        while (in_.SkipOperator("|")) made.filters.push_back(in_.Filter());
        EndTag();
        made.body = Outside("endfilter");
        return made;
    }

    With WithTag() {
        With made;
        while (in_.current().kind != TokenKind::kBlockEnd) {
            if (!made.values.empty()) in_.NeedOperator(",");
            Target target = OneTarget(0);
            in_.NeedOperator("=");
            made.values.emplace_back(std::move(target), in_.Expression());
        }
        EndTag();
        made.body = Block("endwith");
        return made;
    }

    ExpressionParser in_;
    int nesting_ = 0;
    int loops_ = 0;
};

}  // namespace

Body ParseTemplate(std::string_view source) {
    return Parser(source).Template();
}

}  // namespace weft::chat::jinja
