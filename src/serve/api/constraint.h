// What an answer must look like: JSON, a JSON schema, a regular expression, a grammar, or a call of
// a tool.
//
//     response_format      OpenAI: text, json_object, json_schema; and {"type": "regex", "regex"},
//                          {"type": "grammar", "grammar"}
//     structured_outputs   vLLM: json, regex, choice, grammar (guided_json ... as well)
//     grammar, json_schema llama.cpp
//
// Source of the masks: grammar/matcher.h.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/call_frame.h"
#include "grammar/matcher.h"
#include "serve/api/fields.h"

namespace weft::serve {

// A constraint in words, before it is compiled. An empty kind: none.
struct ConstraintText {
    std::string kind{};  // "json_object", "json_schema", "regex", "grammar", "call"
    std::string text{};
    std::string param{};  // where it came from, for errors
    // json_schema: what can't be kept is an error; else it is left out. Calls say it of each tool.
    bool strict = false;
};

// From a request; at most one. Errors are left in `fields`.
ConstraintText ReadConstraint(Fields& fields);
// What other APIs have in the form of response_format, and call `param`.
ConstraintText ReadConstraintOf(Fields& fields, const Json& format, const char* param);
// A call of a tool of `tools` (OpenAI's form) with that name, or of any ("*"), in the frame that a
// model's family puts around it. What begins it is given, and is none of the constraint. A frame
// other than the usual one wants names of plain letters (PlainNames).
struct DemandedCall {
    ConstraintText constraint;
    std::string given, closing;  // what stands before it and behind it
};
// The schema of a function that has none.
Json NoParameters();
bool PlainNames(const Json& tools, const std::string& name);
DemandedCall CallConstraint(const Json& tools, const std::string& name,
                            const chat::CallFrame& frame);

// What `constraint` (json_schema, json_object) asks for, or a call of one of the tools.
ConstraintText OrCallConstraint(const Json& tools, const ConstraintText& constraint,
                                const chat::CallFrame& frame);

// How much a constraint that is not known yet may cost: nothing, less than some 100 ms, or what it
// takes (seconds).
enum class CompileEffort { kNone, kSome, kAll };

// Compiled constraints of late, and their errors, so that masks stay known from request to request.
// Thread: any.
class Constraints {
  public:
    // `tokenizer` outlives this. Its trie is made when the first constraint asks for it. Control
    // tokens that stand in `frame` are written in calls, and nowhere else.
    // most_bytes: of all that are kept, as they are when another is. (One alone may have more.)
    explicit Constraints(const tokenizer::Tokenizer& tokenizer, const chat::CallFrame& frame = {},
                         size_t most_bytes = size_t{256} << 20);
    // A fresh Matcher, whose first mask is known. Errors: those of the grammars, and of Matcher.
    // tenant: who asks; nobody learns by its speed what others have asked for.
    // left_out: not null: gets the keywords of schemas that are not kept, as "KEYWORD,KEYWORD".
    // kCancelled: it takes more effort.
    Result<grammar::Matcher> Compile(const ConstraintText& constraint,
                                     const std::string& tenant = {},
                                     std::string* left_out = nullptr,
                                     CompileEffort effort = CompileEffort::kAll);

    size_t kept() const;  // how many

  private:
    static constexpr size_t kMost = 32;
    static constexpr size_t kMostKeyBytes = 1 << 20;
    struct Compiled {
        Result<grammar::Matcher> matcher;
        std::string left_out{};
    };
    using Entry = std::pair<std::string, Compiled>;

    // Whose control tokens may be written: those within a call, and those around one.
    enum class Markers { kNone, kCall, kWholeCall };

    std::shared_ptr<const grammar::TokenTrie> Trie(Markers markers);
    void Keep(std::string key, Compiled compiled);
    Result<grammar::Matcher> CompileNew(const ConstraintText& constraint,
                                        const grammar::CompileLimits& limits,
                                        std::vector<std::string>& left_out);

    const tokenizer::Tokenizer& tokenizer_;
    const std::string call_markers_;  // what grammars of calls have around names and values
    const std::string whole_call_markers_;
    std::mutex trie_mutex_;
    std::array<std::shared_ptr<const grammar::TokenTrie>, 3> tries_;  // by Markers
    const size_t most_bytes_;
    mutable std::mutex mutex_;
    std::list<Entry> known_;  // the last used first
};

}  // namespace weft::serve
