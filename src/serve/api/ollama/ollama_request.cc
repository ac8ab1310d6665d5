// Translates requests of /api/chat and /api/generate for the engine and OpenAI's chat code.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>

#include "base/deadline.h"
#include "serve/api/llama/fim.h"
#include "serve/api/llama/llama_server.h"
#include "serve/api/members.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/ollama/ollama_dialect.h"
#include "serve/api/openai/chat.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostContext = size_t{1} << 24;
constexpr size_t kMostCallsOfMessage = 1000;  // each tool result is matched against them

// Fields common to both requests.
struct OllamaRequest {
    OllamaModel model;
    engine::Request request;
    ConstraintText constraint;
    Json extra;  // template variables
    OllamaOptions words;
    bool unloads = false;  // "keep_alive" is 0: unload the model
};

// Clamps a number as Ollama does. Other values are returned unchanged; the reader rejects them.
Json Bounded(const Json& value, double least, double most) {
    return value.is_number() ? Json(std::clamp(value.get<double>(), least, most)) : value;
}

// Truncates a number to an integer, as Ollama does.
Json Whole(const Json& value) {
    if (!value.is_number_float() || !(std::abs(value.get<double>()) < 9e15)) return value;
    return static_cast<int64_t>(value.get<double>());
}

// Maps the options to the names and bounds of sampling.h, plus more options.
Json SamplingOf(const Fields& options) {
    Json out = Json::object();
    const auto take = [&](const char* name, auto change) {
        if (options.Has(name)) out[name] = change(options.Get(name));
    };
    take("temperature", [](const Json& v) { return Bounded(v, 0, 100); });
    take("top_p", [](const Json& v) { return Bounded(v, 0, 1); });
    take("min_p", [](const Json& v) { return Bounded(v, 0, 1); });
    take("repeat_penalty", [](const Json& v) { return Bounded(v, 0.01, 100); });
    for (const char* name :
         {"presence_penalty", "frequency_penalty", "stop", "ignore_eos", "logit_bias",
          "top_n_sigma", "xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base",
          "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "min_tokens",
          "stop_token_ids", "suppress_tokens", "allowed_token_ids", "bad_words",
          "include_stop_str_in_output"}) {
        take(name, [](const Json& v) { return v; });
    }
    take("typical_p", [](const Json& v) { return Bounded(v, 0, 1); });
    take("top_k", [](const Json& v) {
        const Json whole = Whole(v);
        return whole.is_number_integer() && whole < 0 ? Json(0) : whole;
    });
    take("repeat_last_n", [](const Json& v) {  // -1: the whole context
        const Json whole = Whole(v);
        return whole.is_number_integer() && whole < 0 ? Json(1 << 24) : whole;
    });
    take("seed", [](const Json& v) { return Whole(v); });
    return out;
}

void ReadOptions(Fields& fields, const Served& served, OllamaRequest& out, AnswerPlan& plan) {
    const Json& options = fields.Object("options");
    Fields given(options, "options.");
    Json chosen = SamplingOf(given);
    chosen["model"] = served.NameOf(out.model.adapter);
    Fields sampling(chosen, "options.");
    ReadSampling(sampling, served, out.request);
    if (sampling.error()) return fields.Adopt(sampling);
    Json whole = Json::object();
    for (const char* name : {"num_ctx", "num_predict"}) {
        if (given.Has(name)) whole[name] = Whole(given.Get(name));
    }
    Fields lengths(whole, "options.");
    lengths.Integer("num_ctx", 0, INT64_MIN, INT64_MAX);  // checked only; --ctx sets the context
    const int64_t most = lengths.Integer("num_predict", -1, INT64_MIN, INT64_MAX);
    out.request.max_tokens = most > 0 ? most : -1;
    FinishRequest(given, served, out.request, plan.left);
    fields.Adopt(lengths);
    fields.Adopt(given);
}

// Reads true, false or a level; templates get enable_thinking and reasoning_effort.
void ReadThink(Fields& fields, const Served& served, OllamaRequest& out) {
    const Json& think = fields.Get("think");
    if (think.is_null()) return;
    const bool level = think == "low" || think == "medium" || think == "high" || think == "max";
    if (!think.is_boolean() && !level) {
        return fields.Fail("think",
                           "'think' must be true, false, \"low\", \"medium\", \"high\" or \"max\".",
                           "invalid_value");
    }
    if (think != false && !served.card.thinking) {
        return fields.Fail("think", fmt::format("\"{}\" does not support thinking", served.name),
                           "unsupported_value");
    }
    out.extra = {{"enable_thinking", think != false}};
    if (level) out.extra["reasoning_effort"] = think == "max" ? Json("high") : think;
}

// Moves the request's settings beside its messages to the conversation.
void Converse(OllamaRequest& asked, Conversation& conversation) {
    conversation.switch_member = conversation.effort_member = "think";
    if (!asked.extra.is_null()) conversation.switched = asked.extra["enable_thinking"] == true;
    if (asked.extra.contains("reasoning_effort")) conversation.reasons = true;
    conversation.input.extra = std::move(asked.extra);
    conversation.constraint = std::move(asked.constraint);
}

// Reads seconds or a string such as "5m". Apart from 0, the value has no effect.
void ReadKeepAlive(Fields& fields, OllamaRequest& out) {
    const Json& keep = fields.Get("keep_alive");
    if (!keep.is_null() && !keep.is_number() && !keep.is_string()) {
        fields.Fail("keep_alive", "'keep_alive' must be a number or a string.", "invalid_type");
    }
    out.unloads = keep == 0 || keep == "0" || keep == "0s" || keep == "0m";
}

std::optional<ApiError> ReadCommon(Fields& fields, const Served& served, OllamaRequest& out,
                                   AnswerPlan& plan) {
    out.words.begin_ns = NowNs();
    std::optional<ApiError> error;
    out.model = ReadOllamaModel(fields, served, error);
    if (error) return error;
    ReadOptions(fields, served, out, plan);
    ReadCaching(fields, out.request);
    out.constraint = ReadFormat(fields);
    ReadThink(fields, served, out);
    ReadKeepAlive(fields, out);
    out.words.logprobs = fields.Bool("logprobs", false);
    const int64_t best = fields.Integer("top_logprobs", 0, 0, kMostLogprobs);
    if (out.words.logprobs) out.request.logprobs = static_cast<int>(best);
    plan.stream = fields.Bool("stream", true);
    plan.whole_calls = true;
    out.words.model = out.model.asked;
    return fields.error();
}

void ReplyNothing(const OllamaRequest& request, AnswerPlan& plan) {
    plan.reply = OllamaNothing(request.words, request.unloads ? "unload" : "load");
}

void RefuseImages(Fields& fields) {
    if (fields.List("images").empty()) return;
    fields.Fail(
        "images",
        fmt::format("'{}' contains images; this model accepts text only.", fields.PathOf("images")),
        "unsupported_content");
}

// Converts messages to OpenAI's form. Ollama's calls may lack ids, and results name the tool: each
// result gets the id of the first unanswered call of that name, or else of any.
class OllamaMessages {
  public:
    Json Read(Fields& fields) {
        const Json& messages = fields.List("messages");
        Json out = Json::array();
        fields.AtMost(kMostMessages, "messages", messages);
        fields.Each("messages", messages, [&](Fields& message, const Json& /*json*/) {
            out.push_back(Message(message));
        });
        return out;
    }

  private:
    Json Message(Fields& message) {
        std::string role = message.Text("role", "");
        std::ranges::transform(role, role.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        });
        Json out{{"role", role}, {"content", ""}};
        if (message.Has("content")) out["content"] = message.Get("content");
        RefuseImages(message);
        if (const std::string thought = message.Text("thinking", ""); !thought.empty()) {
            out["reasoning_content"] = thought;
        }
        if (role == "tool") {
            const std::string tool = message.Text("tool_name", message.Text("name", ""));
            out["name"] = tool;
            out["tool_call_id"] = Answered(tool, message.Text("tool_call_id", ""));
        }
        Json calls = Calls(message);
        if (!calls.empty()) out["tool_calls"] = std::move(calls);
        return out;
    }
    Json Calls(Fields& message) {
        Json out = Json::array();
        const Json& calls = message.List("tool_calls");
        if (!message.AtMost(kMostCallsOfMessage, "tool_calls", calls)) return out;
        if (!calls.empty()) open_.clear();
        for (const Json& json : calls) {
            Fields call(json, message.PathOf("tool_calls") + "[].");
            Fields function(call.Object("function"), call.PathOf("function") + ".");
            const std::string name = function.Text("name", "");
            if (name.empty()) function.Fail("name", "A call in 'tool_calls' has no function name.");
            const Json& arguments = function.Object("arguments");
            const std::string id = call.Text("id", fmt::format("call_{:08}", next_++));
            message.Adopt(call);
            message.Adopt(function);
            open_.emplace_back(id, name);
            out.push_back({{"id", id},
                           {"type", "function"},
                           {"function",
                            {{"name", name},
                             {"arguments", arguments.is_null() ? Json::object() : arguments}}}});
        }
        return out;
    }
    // Id of the call that a result belongs to.
    std::string Answered(const std::string& tool, const std::string& given) {
        auto found = std::ranges::find_if(open_, [&](const auto& call) {
            return given.empty() ? call.second == tool : call.first == given;
        });
        if (found == open_.end() && given.empty() && tool.empty()) found = open_.begin();
        if (found == open_.end()) {
            return given.empty() ? fmt::format("call_{:08}", next_++) : given;
        }
        const std::string id = found->first;
        open_.erase(found);
        return id;
    }

    std::list<std::pair<std::string, std::string>> open_;  // unanswered calls: id, name
    int next_ = 0;
};

}  // namespace

std::optional<ApiError> PlanOllamaChat(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    OllamaRequest asked;
    if (auto error = ReadCommon(fields, served, asked, plan)) return error;
    if (fields.List("messages").empty()) {
        if (!fields.error()) ReplyNothing(asked, plan);
        return fields.error();
    }
    const Json as_openai{{"messages", OllamaMessages().Read(fields)},
                         {"tools", fields.List("tools")}};
    if (auto error = FinishRequest(fields, served, asked.request, plan.left)) return error;
    Fields conversing(as_openai);
    Conversation conversation = ReadConversation(conversing);
    if (conversing.error()) return conversing.error();
    Converse(asked, conversation);
    plan.dialect = MakeOllamaDialect(served, std::move(asked.words));
    return PlanConversation(served, conversation, std::move(asked.request), 1, plan);
}

namespace {

// The "context" of an earlier answer, which begins the prompt.
std::vector<int32_t> ReadContext(Fields& fields, const Served& served) {
    std::vector<int32_t> ids;
    const int64_t most = served.id_limit();
    for (const Json& id : fields.List("context")) {
        const bool known = id.is_number_integer() && id >= 0 && id < most;
        if (!known || ids.size() == kMostContext) {
            fields.Fail("context", "'context' must be the list from an earlier answer.");
            return {};
        }
        ids.push_back(id.get<int32_t>());
    }
    return ids;
}

// Whether the tokenizer added a begin token, which the prompt must not repeat.
bool BeginsAgain(const Served& served, const std::vector<int32_t>& ids) {
    const tokenizer::TokenizerData& data = served.tokenizer().data();
    return data.add_bos && !ids.empty() && ids.front() == data.bos;
}

std::optional<ApiError> PlanTokens(std::vector<int32_t> prompt, const Served& served,
                                   OllamaRequest& asked, AnswerPlan& plan) {
    ChoicePlan choice;
    if (auto error = ConstrainText(plan, served, asked.constraint, asked.request)) return error;
    choice.request = std::move(asked.request);
    choice.request.prompt = std::move(prompt);
    if (!asked.extra.is_null()) AddNames(plan.left.left_out, "think");  // no template is used
    plan.choices.push_back(std::move(choice));
    return {};
}

std::optional<ApiError> PlanText(const std::string& prompt, bool markers, const Served& served,
                                 OllamaRequest& asked, AnswerPlan& plan) {
    if (auto error = CheckPromptBytes(served, prompt.size(), "prompt")) return error;
    return PlanTokens(
        served.tokenizer().Encode(prompt, {.add_special = true, .parse_special = markers}), served,
        asked, plan);
}

// Plans filling in the text between prompt and suffix.
std::optional<ApiError> PlanInsert(const std::string& prompt, const std::string& suffix,
                                   const Served& served, OllamaRequest& asked, AnswerPlan& plan) {
    if (auto error = CheckFim(served, "suffix")) {
        error->message =
            fmt::format("\"{}\" does not support insert. {}", served.name, error->message);
        return error;
    }
    if (auto error = CheckPromptBytes(served, prompt.size() + suffix.size(), "prompt")) {
        return error;
    }
    const tokenizer::Tokenizer& tokenizer = served.tokenizer();
    FimText text;
    text.prefix = PlainTokens(tokenizer, prompt);
    text.suffix = PlainTokens(tokenizer, suffix);
    EndAtFim(served.fim, asked.request);
    return PlanTokens(FimPrompt(served.fim, tokenizer, text), served, asked, plan);
}

std::optional<ApiError> PlanQuestion(const std::string& system, const std::string& prompt,
                                     const Served& served, OllamaRequest& asked, AnswerPlan& plan) {
    if (!served.chat) {  // as Ollama treats a model without a template
        const char* between = system.empty() ? "" : "\n\n";
        return PlanText(fmt::format("{}{}{}", system, between, prompt), false, served, asked, plan);
    }
    Conversation conversation;
    conversation.input = chat::OneQuestion(system, prompt);
    Converse(asked, conversation);
    auto error = PlanConversation(served, conversation, std::move(asked.request), 1, plan);
    if (error) error->param = "prompt";
    plan.prompt_name = "prompt";
    return error;
}

void CheckRaw(Fields& fields, bool raw, const std::string& system) {
    const std::string form = fields.Text("template", "");
    if (raw && (!form.empty() || !system.empty() || fields.Has("context"))) {
        fields.Fail("raw", "raw mode does not support template, system, or context");
    }
    if (!form.empty()) {
        fields.Fail("template",
                    "'template' is not supported: the server uses the model's own chat template. "
                    "Send the complete text as 'prompt' with \"raw\": true.",
                    "unsupported_value");
    }
}

}  // namespace

std::optional<ApiError> PlanOllamaGenerate(const Json& body, const Served& served,
                                           AnswerPlan& plan) {
    Fields fields(body);
    OllamaRequest asked;
    asked.words.chat = false;
    if (auto error = ReadCommon(fields, served, asked, plan)) return error;
    const std::string prompt = fields.Text("prompt", ""), system = fields.Text("system", "");
    const bool raw = fields.Bool("raw", false);
    const std::vector<int32_t> context = ReadContext(fields, served);
    RefuseImages(fields);
    CheckRaw(fields, raw, system);
    const std::string suffix = fields.Text("suffix", "");
    if (auto error = FinishRequest(fields, served, asked.request, plan.left)) return error;
    if (prompt.empty() && suffix.empty()) {
        ReplyNothing(asked, plan);
        return {};
    }
    OllamaOptions words = std::move(asked.words);
    auto error = !suffix.empty() ? PlanInsert(prompt, suffix, served, asked, plan)
                 : raw           ? PlanText(prompt, true, served, asked, plan)
                                 : PlanQuestion(system, prompt, served, asked, plan);
    if (error) return error;
    std::vector<int32_t>& tokens = plan.choices.front().request.prompt;
    if (!context.empty()) {
        if (BeginsAgain(served, tokens)) tokens.erase(tokens.begin());
        tokens.insert(tokens.begin(), context.begin(), context.end());
    }
    const bool goes_on = !raw && suffix.empty();  // "context" then begins a conversation
    if (goes_on) words.context = tokens;
    plan.keeps_tokens = goes_on;
    plan.dialect = MakeOllamaDialect(served, std::move(words));
    return {};
}

}  // namespace weft::serve
