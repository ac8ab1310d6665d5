#include "serve/api/llama/llama_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "serve/api/llama/llama_dialect.h"
#include "serve/api/openai/chat.h"
#include "serve/api/prompts.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostPlainTokens = size_t{1} << 20;
constexpr size_t kMostFiles = 1000;
// Limit of tokens that are returned with their texts; each takes about a hundred bytes.
constexpr size_t kMostPieces = size_t{1} << 18;

// A text field of at most kMostPlainBytes.
std::string PlainText(Fields& fields, const char* name) {
    std::string text = fields.Text(name, "");
    if (text.size() <= kMostPlainBytes) return text;
    fields.Fail(name, fmt::format("'{}' has {} bytes; the limit is {}.", fields.PathOf(name),
                                  text.size(), kMostPlainBytes));
    return "";
}

// Reads a list of {"filename", "text"}.
void ReadFiles(Fields& fields, const Served& served, FimText& text) {
    const Json& list = fields.List("input_extra");
    if (!fields.AtMost(kMostFiles, "input_extra", list)) return;
    size_t bytes = 0;
    fields.Each("input_extra", list, [&](Fields& file, const Json& /*json*/) {
        const FimFile one(file.Text("filename", "tmp"), PlainText(file, "text"));
        if (file.error()) return;
        bytes += one.first.size() + one.second.size();
        if (bytes > kMostPlainBytes) {
            return fields.Fail("input_extra",
                               fmt::format("'input_extra' has at least {} bytes; the limit is {}.",
                                           bytes, kMostPlainBytes));
        }
        text.files.push_back(FileTokens(served.fim, served.tokenizer(), one));
    });
}

// Shortens a FIM prompt until it and `more` tokens fit into the context. Drops context files first,
// starting with the first (clients put the oldest there). Then cuts the text farthest from the gap,
// leaving three quarters of the space to the prefix.
void FitInto(int64_t context, int64_t more, const FimTokens& fim,
             const tokenizer::Tokenizer& tokenizer, FimText& text) {
    const auto size = [](const auto& tokens) { return static_cast<int64_t>(tokens.size()); };
    const auto cut_to = [](std::vector<int32_t>& tokens, int64_t most, bool front) {
        const auto extra = static_cast<int64_t>(tokens.size()) - std::max<int64_t>(most, 0);
        if (extra <= 0) return;
        const auto begin = front ? tokens.begin() : tokens.end() - extra;
        tokens.erase(begin, begin + extra);
    };
    const int64_t most = context - std::max<int64_t>(more, 1);
    int64_t all = size(FimPrompt(fim, tokenizer, text));
    auto kept = text.files.begin();
    for (; all > most && kept != text.files.end(); ++kept) {
        all -= size(*kept);
    }
    if (kept != text.files.begin()) {
        text.files.erase(text.files.begin(), kept);
        all = size(FimPrompt(fim, tokenizer, text));  // without files, their header is omitted, too
    }
    const int64_t room = most - all + size(text.prefix) + size(text.suffix);
    if (size(text.prefix) + size(text.suffix) <= room) return;
    const int64_t suffix = std::min(size(text.suffix), std::max<int64_t>(room, 0) / 4);
    cut_to(text.prefix, room - suffix, true);
    cut_to(text.suffix, room - size(text.prefix), false);
}

// 0 is valid: editors send it to prefill the cache ahead of time.
int64_t ReadPredictLength(Fields& fields) {
    return ReadLength(fields, "n_predict", -1, 0);
}

}  // namespace

std::optional<ApiError> CheckFim(const Served& served, const char* param) {
    if (served.fim.ok()) return {};
    std::string missing;
    const auto lacks = [&](int32_t id, const char* name) {
        if (id < 0) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
    };
    lacks(served.fim.prefix, "prefix");
    lacks(served.fim.suffix, "suffix");
    lacks(served.fim.middle, "middle");
    return ApiError{400,
                    fmt::format("This model does not support infill: its vocabulary lacks "
                                "fill-in-the-middle tokens ({}). Use a model that was trained for "
                                "infill, such as the base version of a coder model.",
                                missing),
                    param, "unsupported_value"};
}

std::optional<ApiError> PlanInfill(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    if (auto error = CheckFim(served, "")) return error;
    engine::Request request;
    ReadSampling(fields, served, request);
    const LlamaRequested asked{fields.Texts("response_fields", 100),
                               fields.Bool("return_tokens", false)};
    request.max_tokens = ReadPredictLength(fields);
    for (const char* name : {"input_prefix", "input_suffix"}) {
        if (!fields.Has(name)) fields.Fail(name, fmt::format("'{}' is required.", name), "missing");
    }
    FimText text;
    const tokenizer::Tokenizer& tokenizer = served.tokenizer();
    text.prefix = PlainTokens(tokenizer, PlainText(fields, "input_prefix"));
    text.suffix = PlainTokens(tokenizer, PlainText(fields, "input_suffix"));
    text.begun = tokenizer.Encode(PlainText(fields, "prompt"),
                                  {.add_special = false, .parse_special = ReadsMarkers(fields)});
    ReadFiles(fields, served, text);
    plan.stream = fields.Bool("stream", false);
    ReadReports(fields, plan);
    const ConstraintText constraint = ReadConstraint(fields);
    if (auto error = FinishRequest(fields, served, request, plan.left)) return error;
    // Without a limit, half of the context is reserved for the answer.
    const int64_t context = served.engine->context();
    const int64_t more = request.max_tokens < 0 ? context / 2 : request.max_tokens;
    FitInto(context, std::min(more, context / 2), served.fim, tokenizer, text);
    request.prompt = FimPrompt(served.fim, tokenizer, text);
    if (asked.tokens) request.logprobs = 0;
    EndAtFim(served.fim, request);
    if (auto error = ConstrainText(plan, served, constraint, request)) return error;
    plan.dialect = MakeLlamaDialect(served, request, asked);
    plan.choices.emplace_back().request = std::move(request);
    return {};
}

std::optional<ApiError> PlanPlainCompletion(const Json& body, const Served& served,
                                            AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    engine::Request request;
    ReadSampling(fields, served, request);
    const LlamaRequested asked{fields.Texts("response_fields", 100),
                               fields.Bool("return_tokens", false)};
    request.max_tokens = ReadPredictLength(fields);
    if (asked.tokens) request.logprobs = 0;
    const Json& prompt = fields.Get("prompt");
    if (!prompt.is_string() && !IsIds(prompt)) {
        fields.Fail("prompt", "'prompt' must be a string or a list of token ids.", "invalid_type");
    }
    plan.stream = fields.Bool("stream", false);
    ReadReports(fields, plan);
    const tokenizer::EncodeOptions how{.add_special = AddsSpecial(fields),
                                       .parse_special = ReadsMarkers(fields)};
    const ConstraintText constraint = ReadConstraint(fields);
    const auto kept = ReadKeptTokens(fields, served, request.max_tokens);
    if (auto error = FinishRequest(fields, served, request, plan.left)) return error;
    if (prompt.is_string()) {
        const auto text = prompt.get<std::string>();
        auto error = CheckPromptBytes(served, text.size(), "prompt");
        if (error && !(kept && text.size() <= kMostPlainBytes)) return error;
        request.prompt = served.tokenizer().Encode(text, how);
    } else {
        request.prompt = Ids(prompt);
    }
    const tokenizer::TokenizerData& words = served.tokenizer().data();
    if (kept) KeepLast(request.prompt, *kept, words.add_bos && how.add_special ? words.bos : -1);
    if (auto error = ConstrainText(plan, served, constraint, request)) return error;
    plan.dialect = MakeLlamaDialect(served, request, asked);
    plan.choices.emplace_back().request = std::move(request);
    return {};
}

namespace {

// As in llama-server: a piece that is not valid UTF-8 becomes a list of bytes.
std::string PieceJson(std::string_view piece) {
    if (IsUtf8(piece)) return Quoted(piece);
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    return Dump(bytes);
}

// Appends a list with one element per token; `word` appends an element.
template <typename Word>
void AddList(const std::vector<int32_t>& tokens, size_t each_bytes, Word word, std::string& out) {
    out.reserve(out.size() + tokens.size() * each_bytes);
    out += '[';
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) out += ',';
        word(tokens[i]);
    }
    out += ']';
}

void AddIds(const std::vector<int32_t>& tokens, std::string& out) {
    constexpr size_t kUsualBytes = 6;
    AddList(
        tokens, kUsualBytes,
        [&](int32_t token) { fmt::format_to(std::back_inserter(out), "{}", token); }, out);
}

std::optional<ApiError> CheckPieces(bool pieces, size_t tokens, const char* param) {
    if (!pieces || tokens <= kMostPieces) return {};
    return ApiError{
        400,
        fmt::format(
            "The text has {} tokens; an answer with the texts of tokens may have at most {}.",
            tokens, kMostPieces),
        param, "invalid_value"};
}

// CheckMembers for a request whose answer is a prompt or its tokens: the members that choose the
// tokens of an answer are named, but are not unknown.
void NameUnread(Fields& fields, const Served& served, AnswerPlan& plan) {
    CheckMembers(fields, served, plan.left);
    plan.left.notices.clear();
}

// llama-server's form: {"content"}.
std::optional<ApiError> TokenizeContent(Fields& fields, const Served& served, AnswerPlan& plan) {
    std::string& answer = plan.reply;
    const std::string text = PlainText(fields, "content");
    const bool special = fields.Bool("add_special", fields.Bool("add_special_tokens", false));
    const bool parse = fields.Bool("parse_special", true);
    const bool pieces = fields.Bool("with_pieces", false);
    NameUnread(fields, served, plan);
    if (fields.error()) return fields.error();
    const std::vector<int32_t> tokens =
        served.tokenizer().Encode(text, {.add_special = special, .parse_special = parse});
    if (auto error = CheckPieces(pieces, tokens.size(), "with_pieces")) return error;
    const auto word = [&](int32_t token) {
        fmt::format_to(std::back_inserter(answer), R"({{"id":{},"piece":{}}})", token,
                       PieceJson(served.tokenizer().Piece(token)));
    };
    constexpr size_t kUsualBytes = 32;
    answer = R"({"tokens":)";
    pieces ? AddList(tokens, kUsualBytes, word, answer) : AddIds(tokens, answer);
    answer += '}';
    return {};
}

}  // namespace

std::optional<ApiError> PlanTokenize(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    const bool conversation = fields.Has("messages");
    if (fields.Has("content") && !conversation && !fields.Has("prompt")) {
        return TokenizeContent(fields, served, plan);
    }
    const bool special = fields.Bool("add_special_tokens", fields.Bool("add_special", true));
    const bool pieces = fields.Bool("with_pieces", fields.Bool("return_token_strs", false));
    std::vector<int32_t> tokens;
    if (conversation) {
        Conversation said = ReadConversation(fields);
        NameUnread(fields, served, plan);
        if (fields.error()) return fields.error();
        ChatPrompt prompt;
        if (auto error = MakePrompt(served, said, prompt, PromptUse::kReturned)) return error;
        AddNames(plan.left.left_out, said.left_out);
        tokens = std::move(prompt.tokens);
    } else {
        if (!fields.Has("prompt")) {
            fields.Fail("prompt",
                        "Send a text as 'prompt' or 'content', or a conversation as 'messages'.");
        }
        const std::string text = PlainText(fields, "prompt");
        const bool markers = ReadsMarkers(fields);  // as /v1/completions reads it
        NameUnread(fields, served, plan);
        if (fields.error()) return fields.error();
        tokens =
            served.tokenizer().Encode(text, {.add_special = special, .parse_special = markers});
    }
    if (auto error = CheckPieces(pieces, tokens.size(), "return_token_strs")) return error;
    std::string& answer = plan.reply;
    answer = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", tokens.size(),
                         served.engine->context());
    AddIds(tokens, answer);
    if (pieces) {
        constexpr size_t kUsualBytes = 16;
        answer += R"(,"token_strs":)";
        AddList(
            tokens, kUsualBytes,
            [&](int32_t token) { answer += Quoted(served.tokenizer().Piece(token)); }, answer);
    }
    answer += '}';
    return {};
}

std::optional<ApiError> Detokenize(const Json& body, const Served& served, Json& answer) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    const Json& list = fields.List("tokens");
    if (!list.empty() && (!IsIds(list) || list.size() > kMostPlainTokens)) {
        fields.Fail(
            "tokens",
            fmt::format("'tokens' must be a list of at most {} token ids.", kMostPlainTokens),
            "invalid_type");
    }
    if (fields.error()) return fields.error();
    const std::vector<int32_t> tokens = Ids(list);
    const int64_t vocab = served.id_limit();
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= 0 && tokens[i] < vocab) continue;
        return ApiError{400,
                        fmt::format("Token {} is not in the vocabulary (0 to {}).",
                                    Dump(list.at(i)), vocab - 1),
                        "tokens", "invalid_value"};
    }
    // "prompt" is the name in vLLM, "content" in llama-server.
    const std::string text = served.tokenizer().Decode(tokens, false);
    answer = {{"prompt", text}, {"content", text}};
    return {};
}

std::optional<ApiError> ApplyTemplate(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    Conversation conversation = ReadConversation(fields);
    NameUnread(fields, served, plan);
    if (fields.error()) return fields.error();
    ChatPrompt prompt;
    if (auto error = MakePrompt(served, conversation, prompt, PromptUse::kReturned)) return error;
    AddNames(plan.left.left_out, conversation.left_out);
    plan.reply = Dump({{"prompt", std::move(prompt.text)}});
    return {};
}

Json TokenizerInfoJson(const Served& served) {
    const tokenizer::TokenizerData& data = served.tokenizer().data();
    const auto piece = [&](int32_t id) {
        return id < 0 ? Json(nullptr) : Json(std::string(served.tokenizer().Piece(id)));
    };
    return {{"tokenizer_class", data.model},
            {"chat_template", served.chat ? Json(served.chat->source()) : Json(nullptr)},
            {"bos_token", piece(data.bos)},
            {"eos_token", piece(data.eos)},
            {"pad_token", piece(data.pad < 0 ? data.eos : data.pad)},
            {"add_bos_token", data.add_bos},
            {"model_max_length", served.engine->context()}};
}

Json PropsJson(const Served& served) {
    const tokenizer::Tokenizer& tokenizer = served.tokenizer();
    const auto piece = [&](int32_t id) { return id < 0 ? "" : std::string(tokenizer.Piece(id)); };
    Json settings{{"id", 0},
                  {"id_task", -1},
                  {"n_ctx", served.engine->context()},
                  {"speculative", served.speculative},
                  {"is_processing", served.engine->counters().schedule.running > 0},
                  {"params", SamplingJson(served.sampling)}};
    settings["params"].update({{"n_predict", -1},
                               {"max_tokens", -1},
                               {"stop", Json::array()},
                               {"ignore_eos", false},
                               {"stream", false},
                               {"n_probs", 0},
                               {"grammar", ""}});
    return {{"default_generation_settings", std::move(settings)},
            {"sampling", served.sampling_by},
            {"total_slots", served.slots},
            {"model_alias", served.name},
            {"model_path", served.path},
            {"chat_template", served.chat ? served.chat->source() : ""},
            {"chat_template_caps", Json::object()},
            {"modalities", {{"vision", false}, {"audio", false}}},
            {"bos_token", piece(tokenizer.data().bos)},
            {"eos_token", piece(tokenizer.data().eos)},
            {"build_info", "weft-" WEFT_VERSION},
            {"is_sleeping", false}};
}

}  // namespace weft::serve
