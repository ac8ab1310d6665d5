// /api/embed, and the older /api/embeddings for a single text.
#include <fmt/format.h>

#include <algorithm>

#include "base/deadline.h"
#include "serve/api/dialect.h"
#include "serve/api/members.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/prompts.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

// Most tokens of a text.
int64_t Room(const Served& served) {
    const int64_t most = served.head.most_tokens;
    return most > 0 ? std::min(most, served.engine->context()) : served.engine->context();
}

std::optional<ApiError> AddText(const Json& json, const std::string& name, bool truncates,
                                const Served& served, const engine::Request& each,
                                EmbeddingPlan& plan) {
    if (!json.is_string()) {
        return ApiError{400, fmt::format("'{}' must be a string.", name), name, "invalid_type"};
    }
    if (served.head.scores) {
        return ApiError{400, "This model scores pairs of texts: use /v1/rerank or /v1/score.",
                        "model", "unsupported_value"};
    }
    if (json == "") {
        return ApiError{400, fmt::format("'{}' is an empty text.", name), name, "invalid_value"};
    }
    const std::string text = served.head.prompt + json.get_ref<const std::string&>();
    if (!truncates) {
        if (auto error = CheckPromptBytes(served, text.size(), name.c_str())) return error;
    }
    engine::Request request = each;
    request.prompt =
        truncates ? CutTokens(served.tokenizer(), text, Room(served), false, served.head.cuts_begin)
                  : served.tokenizer().Encode(text, {.add_special = true});
    if (std::ssize(request.prompt) > Room(served)) {
        return TooLong({std::ssize(request.prompt), Room(served), false}, name);
    }
    request.pooling = served.head.poolings;
    request.pool_from = UnpooledTokens(served, served.head.prompt);
    if (const Status sound = served.engine->Check(request); !sound.ok()) {
        return ErrorOf(sound.error());
    }
    plan.requests.push_back(std::move(request));
    return {};
}

// The members that both routes share. Call it after the readers of the others.
engine::Request ReadEach(Fields& fields, const Served& served, int32_t adapter,
                         EmbeddingPlan& plan) {
    engine::Request each;
    each.adapter = adapter;
    ReadCaching(fields, each);
    CheckMembers(fields, served, plan.left);
    return each;
}

std::string VectorList(const std::vector<std::string>& vectors) {
    std::string list = "[";
    for (const std::string& vector : vectors) {
        if (list.size() > 1) list += ',';
        list += vector;
    }
    list += ']';
    return list;
}

std::string EmbedBody(const std::string& model, int64_t begin_ns, int64_t tokens,
                      const std::vector<std::string>& vectors) {
    return fmt::format(R"({{"model":{},"embeddings":{},"total_duration":{},"load_duration":0,)"
                       R"("prompt_eval_count":{}}})",
                       Quoted(model), VectorList(vectors), NowNs() - begin_ns, tokens);
}

}  // namespace

std::optional<ApiError> PlanOllamaEmbed(const Json& body, const Served& served,
                                        EmbeddingPlan& plan) {
    const int64_t begin_ns = NowNs();
    Fields fields(body);
    std::optional<ApiError> error;
    const OllamaModel model = ReadOllamaModel(fields, served, error);
    if (error) return error;
    plan.error_body = OllamaError;
    plan.body = [name = model.asked, begin_ns](const std::vector<std::string>& vectors,
                                               const AnswerRecord& record) {
        return EmbedBody(name, begin_ns, record.usage.prompt_tokens, vectors);
    };
    plan.dimensions = fields.Integer("dimensions", 0, 0, served.embedding_columns());
    const bool truncates = fields.Bool("truncate", true);
    const Json& input = fields.Get("input");
    const engine::Request each = ReadEach(fields, served, model.adapter, plan);
    if (fields.error()) return fields.error();
    const bool one = input.is_string();
    if (input.is_null() || input == "" || (input.is_array() && input.empty())) {
        plan.reply = EmbedBody(model.asked, begin_ns, 0, {});
        return {};
    }
    if (!one && (!input.is_array() || input.size() > kMostEmbeddingTexts)) {
        return ApiError{400,
                        fmt::format("'input' must be a string or a list of at most {} strings.",
                                    kMostEmbeddingTexts),
                        "input", "invalid_type"};
    }
    if (one) return AddText(input, "input", truncates, served, each, plan);
    for (size_t i = 0; i < input.size(); ++i) {
        error = AddText(input[i], fmt::format("input[{}]", i), truncates, served, each, plan);
        if (error) return error;
    }
    return {};
}

std::optional<ApiError> PlanOllamaEmbeddings(const Json& body, const Served& served,
                                             EmbeddingPlan& plan) {
    Fields fields(body);
    std::optional<ApiError> error;
    const OllamaModel model = ReadOllamaModel(fields, served, error);
    if (error) return error;
    plan.error_body = OllamaError;
    plan.body = [](const std::vector<std::string>& vectors, const AnswerRecord&) {
        return fmt::format(R"({{"embedding":{}}})", vectors.front());
    };
    const Json& prompt = fields.Get("prompt");
    const engine::Request each = ReadEach(fields, served, model.adapter, plan);
    if (fields.error()) return fields.error();
    if (prompt.is_null() || prompt == "") {
        plan.reply = R"({"embedding":[]})";
        return {};
    }
    return AddText(prompt, "prompt", true, served, each, plan);
}

}  // namespace weft::serve
