// Constraints on an answer: JSON, a JSON schema, a regular expression, a grammar, or a tool call.
//
//     response_format      OpenAI: text, json_object, json_schema; and {"type": "regex", "regex"},
//                          {"type": "grammar", "grammar"}
//     structured_outputs   vLLM: json, json_object, regex, choice, grammar (guided_json ... as
//     well) grammar, json_schema llama.cpp regex, ebnf          SGLang
//
// Token masks: grammar/matcher.h.
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

// A constraint before compilation. Empty kind: no constraint.
struct ConstraintText {
    std::string kind{};  // "json_object", "json_schema", "regex", "grammar", "call"
    std::string text{};
    std::string param{};  // name of the request field, for errors
    // json_schema: unsupported keywords are an error; else they are ignored. For calls, each tool
    // has its own "strict".
    bool strict = false;
};

// Reads the request's constraint; at most one is allowed. Reports errors in `fields`.
ConstraintText ReadConstraint(Fields& fields);
// Reads Ollama's `format`: "json", or a schema. Part of ReadConstraint.
ConstraintText ReadFormat(Fields& fields);
// Reads `format`, in the form of response_format, from another API's field `param`.
ConstraintText ReadConstraintOf(Fields& fields, const Json& format, const char* param);
// A call of the tool `name` ("*": any) of `tools` (OpenAI's form), in the frame of the model's
// family. The text before the call is appended to the prompt; the constraint does not cover it.
// Frames other than the default need tool names of plain letters (PlainNames).
struct DemandedCall {
    ConstraintText constraint;
    std::string given, closing;  // text before and after the constrained part
};
// Parameter schema of a function that declares none.
Json NoParameters();
bool PlainNames(const Json& tools, const std::string& name);
// whole: the constraint covers the whole call, and `given` and `closing` are empty.
DemandedCall CallConstraint(const Json& tools, const std::string& name,
                            const chat::CallFrame& frame, bool whole = false);

// Accepts either `constraint` (json_schema, json_object) or a call of one of the tools.
ConstraintText OrCallConstraint(const Json& tools, const ConstraintText& constraint,
                                const chat::CallFrame& frame);

// Effort allowed for compiling a constraint that is not cached: none, about 100 ms, or unlimited
// (seconds).
enum class CompileEffort { kNone, kSome, kAll };

// LRU cache of compiled constraints and of compile errors. Beyond a limit, the tenant that holds
// most loses an entry. Token masks persist across requests. Thread: any.
class Constraints {
  public:
    // `tokenizer` outlives this. The token trie is built on first use. Control tokens in `frame`
    // are allowed in calls only.
    // most_bytes: limit for all entries, enforced when one is added. A single entry may exceed it.
    explicit Constraints(const tokenizer::Tokenizer& tokenizer, const chat::CallFrame& frame = {},
                         size_t most_bytes = size_t{256} << 20);
    // Returns a new Matcher whose first mask is computed.
    // tenant: cache partition, so that timing does not reveal other tenants' constraints.
    // left_out: if not null, receives the schema keywords that are not enforced, as
    // "KEYWORD,KEYWORD".
    // Errors: those of the grammar compilers and of Matcher; kCancelled: `effort` does not suffice.
    Result<grammar::Matcher> Compile(const ConstraintText& constraint,
                                     const std::string& tenant = {},
                                     std::string* left_out = nullptr,
                                     CompileEffort effort = CompileEffort::kAll);

    size_t kept() const;  // number of entries

  private:
    static constexpr size_t kMost = 32;
    static constexpr size_t kMostKeyBytes = 1 << 20;
    struct Compiled {
        Result<grammar::Matcher> matcher;
        std::string left_out{};
    };
    struct Entry {
        std::string key, tenant;
        Compiled compiled;
        size_t bytes() const {
            return key.size() + (compiled.matcher.ok() ? compiled.matcher->size_bytes() : 0);
        }
    };

    // Control tokens that may be written: none, those inside a call, or also those around it.
    enum class Markers { kNone, kCall, kWholeCall };

    std::shared_ptr<const grammar::TokenTrie> Trie(Markers markers);
    void Keep(Entry entry);
    Result<grammar::Matcher> CompileNew(const ConstraintText& constraint,
                                        const grammar::CompileLimits& limits,
                                        std::vector<std::string>& left_out);

    const tokenizer::Tokenizer& tokenizer_;
    const std::string call_markers_;  // control tokens around names and values in calls
    const std::string whole_call_markers_;
    std::mutex trie_mutex_;
    std::array<std::shared_ptr<const grammar::TokenTrie>, 3> tries_;  // by Markers
    const size_t most_bytes_;
    mutable std::mutex mutex_;
    std::list<Entry> known_;  // most recently used first
};

}  // namespace weft::serve
