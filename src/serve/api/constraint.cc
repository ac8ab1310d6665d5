#include "serve/api/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex_grammar.h"
#include "grammar/schema_keywords.h"
#include "serve/api/dialect.h"

namespace weft::serve {
namespace {

constexpr size_t kMostChoices = 1000;
// Limits for CompileEffort::kSome. A state takes about 10 us, a step 40 ns.
constexpr grammar::CompileLimits kSomeEffort{.states = 1 << 12, .steps = 1'000'000};

const Json kNoFormat = Json::object();

// Accepts a schema as an object or as JSON text.
std::string SchemaText(const Json& schema) {
    return schema.is_string() ? schema.get<std::string>() : Dump(schema);
}

// A GBNF grammar that matches exactly one of the strings.
std::string ChoiceGrammar(const Json& choices) {
    std::string grammar = "root ::= ";
    for (size_t i = 0; i < choices.size(); ++i) {
        if (i > 0) grammar += " | ";
        grammar += '"';
        for (const char c : choices[i].get<std::string>()) {
            const bool plain = c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20;
            grammar += plain ? std::string(1, c) : fmt::format("\\x{:02X}", static_cast<int>(c));
        }
        grammar += '"';
    }
    return grammar;
}

// OpenAI's chat completions nest the schema in "json_schema", other APIs have it in the format
// itself, and text-generation-inference in "value".
void ReadSchema(Fields& format, ConstraintText& out) {
    const char* const nest = format.Get("value").contains("schema") ? "value" : "json_schema";
    const bool nested = format.Object(nest).is_object();
    Fields said(nested ? format.Object(nest) : kNoFormat, format.PathOf(nest) + ".");
    const Json& schema = said.Has("schema")     ? said.Get("schema")
                         : format.Has("schema") ? format.Get("schema")
                                                : format.Get("value");
    if (schema.is_null()) {
        const std::string name = nested ? said.PathOf("schema") : format.PathOf("schema");
        format.Fail("schema", fmt::format("'{}' is missing.", name), "missing_required_parameter");
    }
    out.kind = "json_schema";
    out.text = SchemaText(schema);
    out.strict = said.Bool("strict", format.Bool("strict", false));
    if (said.error()) format.Fail(nest, said.error()->message, said.error()->code);
}

// The first of the members, which must be a text with letters.
std::string FormatText(Fields& format, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (!format.Has(name)) continue;
        std::string text = format.Text(name, "");
        if (text.empty()) {
            format.Fail(name, fmt::format("'{}' is empty.", format.PathOf(name)));
        }
        return text;
    }
    const char* const first = *names.begin();
    format.Fail(first, fmt::format("'{}' is missing.", format.PathOf(first)),
                "missing_required_parameter");
    return "";
}

// A request may repeat its constraint under another name, but not have two.
void Choose(Fields& fields, ConstraintText& out, ConstraintText found) {
    if (!out.kind.empty() && (out.kind != found.kind || out.text != found.text)) {
        fields.Fail(found.param.c_str(),
                    fmt::format("'{}' beside '{}': a request can have one constraint.", found.param,
                                out.param));
    }
    out = std::move(found);
}

// Reads vLLM's fields from `from`, whose names begin with `prefix`.
void ReadGuided(Fields& fields, Fields& from, const std::string& prefix, ConstraintText& out) {
    const auto name = [&](const char* word) { return prefix + word; };
    const auto add = [&](const char* kind, std::string text, const char* word) {
        Choose(fields, out, {kind, std::move(text), from.PathOf(name(word).c_str())});
    };
    if (const Json& schema = from.Get(name("json").c_str()); !schema.is_null()) {
        add("json_schema", SchemaText(schema), "json");
    }
    if (from.Bool(name("json_object").c_str(), false)) add("json_object", "", "json_object");
    for (const char* word : {"regex", "grammar"}) {
        if (from.Has(name(word).c_str())) add(word, from.Text(name(word).c_str(), ""), word);
    }
    const Json& choices = from.List(name("choice").c_str());
    const bool texts = std::ranges::all_of(choices, [](const Json& c) { return c.is_string(); });
    const bool none = from.Has(name("choice").c_str()) && choices.empty();
    if (!texts || none || choices.size() > kMostChoices) {
        from.Fail(name("choice").c_str(), fmt::format("'{}' must be a list of 1 to {} strings.",
                                                      name("choice"), kMostChoices));
    } else if (!choices.empty()) {
        add("grammar", ChoiceGrammar(choices), "choice");
    }
    if (from.error() && &from != &fields) {
        fields.Fail("structured_outputs", from.error()->message, from.error()->code);
    }
}

// vLLM's structured_outputs. An object that constrains nothing is an error: its member is misspelt
// or of another server.
void ReadStructured(Fields& fields, ConstraintText& out) {
    constexpr const char* kName = "structured_outputs";
    const Json& given = fields.Object(kName);
    Fields structured(given, "structured_outputs.");
    if (structured.Has("structural_tag")) {
        structured.Fail("structural_tag", "'structured_outputs.structural_tag' is not supported.",
                        "unsupported_value");
    }
    ConstraintText found;
    ReadGuided(fields, structured, "", found);
    if (fields.error() || given.empty()) return;
    if (!found.kind.empty()) return Choose(fields, out, std::move(found));
    if (structured.Has("json_object")) return;
    fields.Fail(kName,
                "'structured_outputs' must have one of json, regex, choice, grammar and "
                "json_object.");
}

// A function's name escaped for JSON, without the quotes.
std::string InQuotes(const std::string& name) {
    const std::string quoted = Dump(Json(name));
    return quoted.substr(1, quoted.size() - 2);
}

// Schema of a function's arguments: always an object; empty if "parameters" is absent (as OpenAI
// specifies).
Json ArgumentsSchema(const Json& function) {
    const auto found = function.find("parameters");
    if (found == function.end() || !found->is_object() || found->empty()) {
        return NoParameters();
    }
    Json schema = *found;
    if (!schema.contains("type")) schema["type"] = "object";
    return schema;
}

// The distinct keywords of the notes ("PATH: KEYWORD"), for the log. Unknown ones are not quoted,
// because they are text of the request.
std::string KeywordsOf(const std::vector<std::string>& notes) {
    std::vector<std::string> keywords;
    for (const std::string& note : notes) {
        const std::string word = note.substr(note.rfind(' ') + 1);
        const std::string shown = grammar::IsSchemaKeyword(word) ? word : "unknown";
        if (std::ranges::find(keywords, shown) == keywords.end()) keywords.push_back(shown);
    }
    return fmt::format("{}", fmt::join(keywords, ","));
}

constexpr size_t kMostCallDepth = 200, kMostCallValues = 1 << 16;

// Compiles the text made by CallConstraint.
Result<grammar::GrammarPtr> CallGrammar(const std::string& text,
                                        const grammar::CompileLimits& limits,
                                        std::vector<std::string>& left_out) {
    if (text.size() > grammar::kMostSchemaBytes) {
        return MakeError(ErrorCode::kUsage, "tools: the schemas have {} bytes; the limit is {}",
                         text.size(), grammar::kMostSchemaBytes);
    }
    // Schemas that nest too deeply are rejected later by the compiler, which names the place.
    const Json json =
        OrderedJsonOrDiscarded(text, {.depth = kMostCallDepth, .values = kMostCallValues});
    if (json.is_discarded()) {
        return MakeError(ErrorCode::kUsage,
                         "tools: the schemas nest deeper than {} or have more than {} values; make "
                         "them smaller, or do not force a call",
                         kMostCallDepth, kMostCallValues);
    }
    std::vector<grammar::CallText> calls;
    for (const Json& call : json["calls"]) {
        calls.push_back({call["before"], call["after"], call["arguments"], call["strict"] != true});
    }
    grammar::CallText other;
    const bool may_be_other = json.contains("otherwise");
    if (may_be_other) other = {"", "", json["otherwise"], json["strict"] != true};
    const grammar::CallText* otherwise = may_be_other ? &other : nullptr;
    if (!json.contains("pairs")) {
        return grammar::GrammarFromCalls(calls, {}, &left_out, otherwise, limits);
    }
    const Json& of = json["pairs"];
    using Texts = grammar::CallPairs::Texts;
    return grammar::GrammarFromCalls(
        calls,
        grammar::CallPairs{.before_key = of["before_key"],
                           .before_value = of["before_value"],
                           .behind_value = of["behind_value"],
                           .between = of["between"],
                           .texts = of["bare"]          ? Texts::kBare
                                    : of["quote"] == "" ? Texts::kJson
                                                        : Texts::kQuoted,
                           .quote = of["quote"]},
        &left_out, otherwise, limits);
}

Json PairsOf(const chat::CallFrame& frame) {
    using Arguments = chat::CallFrame::Arguments;
    return {{"before_key", frame.before_key},
            {"before_value", frame.before_value},
            {"behind_value", frame.behind_value},
            {"between", frame.between},
            {"bare", frame.arguments == Arguments::kTexts},
            {"quote", frame.quote}};
}

// A call with the text around it.
Json WholeCall(const Json& function, const chat::CallFrame& frame) {
    const std::string shown = InQuotes(function["name"].get<std::string>());
    return {{"strict", function.value("strict", Json()) == true},
            {"before", frame.before + shown + frame.middle},
            {"after", frame.after},
            {"arguments", ArgumentsSchema(function)}};
}

}  // namespace

Json NoParameters() {
    return {{"type", "object"}, {"properties", Json::object()}};
}

ConstraintText ReadConstraint(Fields& fields) {
    ConstraintText constraint =
        ReadConstraintOf(fields, fields.Get("response_format"), "response_format");
    if (fields.error()) return constraint;
    ReadStructured(fields, constraint);
    if (fields.error()) return constraint;
    ReadGuided(fields, fields, "guided_", constraint);
    // llama-server's grammar and json_schema; SGLang's regex and ebnf; grammar_string of
    // text-generation-webui. An empty text sets no constraint.
    const auto add = [&](const char* kind, const char* name) {
        std::string text = fields.Text(name, "");
        if (!text.empty()) Choose(fields, constraint, {kind, std::move(text), name});
    };
    add("grammar", "grammar");
    add("grammar", "ebnf");
    add("grammar", "grammar_string");
    add("regex", "regex");
    if (fields.Has("json_schema") && fields.Get("json_schema") != "") {
        Choose(fields, constraint,
               {"json_schema", SchemaText(fields.Get("json_schema")), "json_schema"});
    }
    if (fields.Bool("json_mode", false)) {
        Choose(fields, constraint, {"json_object", "", "json_mode"});
    }
    ConstraintText format = ReadFormat(fields);
    if (!format.kind.empty()) Choose(fields, constraint, std::move(format));
    return constraint;
}

ConstraintText ReadFormat(Fields& fields) {
    const Json& format = fields.Get("format");
    if (format.is_null() || format == "") return {};
    if (format == "json") return {"json_object", "", "format"};
    if (format.is_object()) return {"json_schema", Dump(format), "format"};
    fields.Fail("format", "'format' must be \"json\" or a JSON schema (an object).",
                "invalid_type");
    return {};
}

ConstraintText ReadConstraintOf(Fields& fields, const Json& format, const char* param) {
    const std::string path = fields.PathOf(param);
    ConstraintText out{.param = path};
    if (format.is_null()) return out;
    Fields inner(format, path + ".");
    if (!format.is_object()) {
        fields.Fail(param, fmt::format("Invalid type for '{}': expected an object.", path),
                    "invalid_type");
        return out;
    }
    const std::string type = inner.Choice(
        "type", "text",
        {"text", "json_object", "json_schema", "json", "regex", "grammar", "structural_tag"});
    if (type == "json_schema") {
        ReadSchema(inner, out);
    } else if (type == "regex") {
        out.kind = type;
        out.text = FormatText(inner, {"regex", "pattern", "value"});
    } else if (type == "grammar") {
        out.kind = type;
        out.text = FormatText(inner, {"grammar", "value"});
    } else if (type == "json" || type == "json_object") {
        const Json& schema = inner.Get(inner.Has("schema") ? "schema" : "value");
        out.kind = schema.is_null() ? "json_object" : "json_schema";
        if (!schema.is_null()) out.text = SchemaText(schema);
    } else if (type == "structural_tag") {
        inner.Fail("type", "'structural_tag' is not supported.", "unsupported_value");
    }
    if (inner.error()) fields.Fail(param, inner.error()->message, inner.error()->code);
    return out;
}

bool PlainNames(const Json& tools, const std::string& name) {
    return std::ranges::all_of(tools, [&](const Json& tool) {
        const std::string& one = tool["function"]["name"].get_ref<const std::string&>();
        if (name != "*" && one != name) return true;
        return grammar::IsPlainName(one);
    });
}

DemandedCall CallConstraint(const Json& tools, const std::string& name,
                            const chat::CallFrame& frame, bool whole) {
    using Arguments = chat::CallFrame::Arguments;
    const bool pairs = frame.arguments != Arguments::kJson;
    Json calls = Json::array();
    std::string only;  // the function's name, if there is only one
    for (const Json& tool : tools) {
        const Json& function = tool["function"];
        if (name != "*" && function["name"] != name) continue;
        if (whole) {
            calls.push_back(WholeCall(function, frame));
            continue;
        }
        const std::string shown = InQuotes(function["name"].get<std::string>());
        only = calls.empty() ? shown : "";
        calls.push_back({{"strict", function.value("strict", Json()) == true},
                         {"before", shown + frame.middle},
                         {"after", pairs ? frame.after : ""},
                         {"arguments", ArgumentsSchema(function)}});
    }
    std::string given = frame.before;
    if (!only.empty()) {
        given += only + frame.middle;
        calls[0]["before"] = "";
    }
    Json call{{"calls", std::move(calls)}};
    if (pairs) call["pairs"] = PairsOf(frame);
    if (whole) return {{"call", Dump(call), "tool_choice"}, "", ""};
    return {{"call", Dump(call), "tools"}, std::move(given), pairs ? "" : frame.after};
}

ConstraintText OrCallConstraint(const Json& tools, const ConstraintText& constraint,
                                const chat::CallFrame& frame) {
    Json calls = Json::array();
    for (const Json& tool : tools) {
        calls.push_back(WholeCall(tool["function"], frame));
    }
    Json call{{"calls", std::move(calls)}};
    if (frame.arguments != chat::CallFrame::Arguments::kJson) call["pairs"] = PairsOf(frame);
    call["strict"] = constraint.strict;
    call["otherwise"] = constraint.kind == "json_object" ? Json{{"type", "object"}}
                                                         : OrderedJsonOrDiscarded(constraint.text);
    return {"call", Dump(call), constraint.param};
}

Constraints::Constraints(const tokenizer::Tokenizer& tokenizer, const chat::CallFrame& frame,
                         size_t most_bytes)
    : tokenizer_(tokenizer),
      call_markers_(frame.arguments == chat::CallFrame::Arguments::kJson
                        ? frame.middle
                        : frame.middle + frame.before_key + "\n" + frame.middle + frame.after +
                              "\n" + frame.before_value + frame.quote + "\n" + frame.quote +
                              frame.behind_value + frame.between + frame.before_key + "\n" +
                              frame.quote + frame.behind_value + frame.after),
      whole_call_markers_(frame.before + "\n" + call_markers_ + "\n" + frame.after + "\n" +
                          chat::CallFrame().before + "\n" + chat::CallFrame().after),
      most_bytes_(most_bytes) {}

size_t Constraints::kept() const {
    const std::lock_guard lock(mutex_);
    return known_.size();
}

std::shared_ptr<const grammar::TokenTrie> Constraints::Trie(Markers markers) {
    const std::lock_guard lock(trie_mutex_);
    auto& trie = tries_[static_cast<size_t>(markers)];
    if (trie == nullptr) {
        const bool none = markers == Markers::kNone, call = markers == Markers::kCall;
        trie = grammar::TokenTrie::Make(tokenizer_, none   ? ""
                                                    : call ? call_markers_
                                                           : whole_call_markers_);
    }
    return trie;
}

Result<grammar::Matcher> Constraints::Compile(const ConstraintText& constraint,
                                              const std::string& tenant, std::string* left_out,
                                              CompileEffort effort) {
    const auto answer = [&](const Compiled& compiled) {
        if (left_out != nullptr) *left_out = compiled.left_out;
        return compiled.matcher;
    };
    std::string key = fmt::format("{}:{}:{}:{}:{}", tenant.size(), tenant, constraint.strict,
                                  constraint.kind, constraint.text);
    {
        const std::lock_guard lock(mutex_);
        const auto it = std::ranges::find(known_, key, &Entry::key);
        if (it != known_.end()) {
            known_.splice(known_.begin(), known_, it);
            return answer(known_.front().compiled);
        }
    }
    if (effort == CompileEffort::kNone) {
        return MakeError(ErrorCode::kCancelled,
                         "{}: not compiled within the effort allowed; deferred", constraint.kind);
    }
    std::vector<std::string> notes;
    const bool some = effort == CompileEffort::kSome;
    const Result<grammar::Matcher> matcher =
        CompileNew(constraint, some ? kSomeEffort : grammar::CompileLimits(), notes);
    if (!matcher.ok() && matcher.error().code == ErrorCode::kCancelled) return matcher;
    const Compiled compiled{matcher, KeywordsOf(notes)};
    if (key.size() <= kMostKeyBytes) Keep({std::move(key), tenant, compiled});
    return answer(compiled);
}

// The new entry stays.
void Constraints::Keep(Entry entry) {
    const std::lock_guard lock(mutex_);
    known_.push_front(std::move(entry));
    for (;;) {
        size_t bytes = known_.front().bytes();
        std::map<std::string_view, std::pair<size_t, size_t>> held;  // count and bytes, by tenant
        for (auto one = std::next(known_.begin()); one != known_.end(); ++one) {
            auto& [count, size] = held[one->tenant];
            ++count;
            size += one->bytes();
            bytes += one->bytes();
        }
        const bool too_many = known_.size() > kMost;
        if (held.empty() || (!too_many && bytes <= most_bytes_)) return;
        const auto most = std::ranges::max_element(held, {}, [&](const auto& of_tenant) {
            return too_many ? of_tenant.second.first : of_tenant.second.second;
        });
        const auto oldest = std::find_if(known_.rbegin(), known_.rend(), [&](const Entry& one) {
            return one.tenant == most->first;
        });
        known_.erase(std::next(oldest).base());
    }
}

// Compiles a constraint and its first mask. A grammar that is too ambiguous fails here, on the
// request's thread, not in the engine.
Result<grammar::Matcher> Constraints::CompileNew(const ConstraintText& constraint,
                                                 const grammar::CompileLimits& limits,
                                                 std::vector<std::string>& left_out) {
    const bool call = constraint.kind == "call";
    const bool whole = call && constraint.param != "tools";
    const auto trie = Trie(whole ? Markers::kWholeCall : call ? Markers::kCall : Markers::kNone);
    const grammar::SchemaOptions options{
        .lenient = !constraint.strict, .left_out = &left_out, .limits = limits};
    const std::string& text = constraint.text;
    const auto grammar = call                               ? CallGrammar(text, limits, left_out)
                         : constraint.kind == "json_object" ? grammar::JsonObjectGrammar()
                         : constraint.kind == "json_schema"
                             ? grammar::GrammarFromJsonSchemaText(text, options)
                         : constraint.kind == "regex" ? grammar::GrammarFromRegex(text, limits)
                                                      : grammar::GrammarFromGbnf(text, limits);
    if (!grammar.ok()) return grammar.error();
    WEFT_ASSIGN(grammar::Matcher matcher, grammar::Matcher::Make(*grammar, trie));
    std::vector<uint32_t> mask(trie->mask_words());
    // The first attempt may run out of steps; its cached results may let the second one finish.
    if (!matcher.Allowed(mask).ok()) {
        WEFT_TRY(matcher.Allowed(mask));
    }
    return matcher;
}

}  // namespace weft::serve
