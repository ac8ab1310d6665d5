// Ollama's lists and descriptions of the served model.
#include <fmt/format.h>

#include "serve/api/ollama/ollama.h"

namespace weft::serve {
namespace {

// Adds ":latest", because clients compare names with their tags.
std::string TaggedName(const std::string& name) {
    const size_t slash = name.rfind('/');
    const size_t begin = slash == std::string::npos ? 0 : slash;
    return name.find(':', begin) == std::string::npos ? fmt::format("{}:latest", name) : name;
}

Json DetailsJson(const Served& served, int32_t adapter) {
    const ModelCard& card = served.card;
    return {{"parent_model", adapter == 0 ? "" : served.name},
            {"format", card.format},
            {"family", card.family},
            {"families", Json::array({card.family})},
            {"parameter_size", ParametersText(card.parameters)},
            {"quantization_level", card.quantization},
            {"context_length", served.context},
            {"embedding_length", served.hyper.hidden}};
}

// Clients treat a model with only "embedding" as an embedding model.
Json CapabilitiesJson(const Served& served) {
    if (!served.generates) return Json::array({"embedding"});
    Json list = Json::array({"completion"});
    if (served.card.tools) list.push_back("tools");
    if (served.card.thinking) list.push_back("thinking");
    if (served.fim.ok()) list.push_back("insert");
    return list;
}

// An adapter has its own digest, so that clients do not treat it as an alias of the model.
std::string ModelDigest(const Served& served, int32_t adapter) {
    std::string digest = served.card.digest;
    const std::string number = fmt::format("{:04x}", adapter);
    if (digest.size() > number.size()) digest.replace(0, number.size(), number);
    return adapter == 0 ? served.card.digest : digest;
}

std::string ModifiedText(const Served& served) {
    return OllamaTime(served.card.modified_s > 0 ? served.card.modified_s : served.created_s);
}

Json EntryJson(const Served& served, int32_t adapter) {
    const std::string name = TaggedName(served.NameOf(adapter));
    return {{"name", name},
            {"model", name},
            {"size", served.card.size_bytes},
            {"digest", ModelDigest(served, adapter)},
            {"details", DetailsJson(served, adapter)}};
}

// Sampling parameters in Modelfile syntax.
std::string ParameterLines(const Served& served) {
    const engine::SamplerOptions& usual = served.sampling;
    return fmt::format("{:<30} {}\n{:<30} {}\n{:<30} {}\n{:<30} {}\n{:<30} {}", "num_ctx",
                       served.context, "temperature", usual.temperature, "top_k", usual.top_k,
                       "top_p", usual.top_p, "min_p", usual.min_p);
}

template <typename Add>
Json EntriesJson(const Served& served, const Add& add) {
    Json models = Json::array();
    for (size_t i = 0; i <= served.adapters.size(); ++i) {
        Json entry = EntryJson(served, static_cast<int32_t>(i));
        add(entry);
        models.push_back(std::move(entry));
    }
    return models;
}

}  // namespace

Json OllamaTagEntries(const Served& served) {
    return EntriesJson(served, [&](Json& entry) {
        entry["modified_at"] = ModifiedText(served);
        entry["capabilities"] = CapabilitiesJson(served);
    });
}

Json OllamaRunningEntries(const Served& served, std::optional<int64_t> expires_s) {
    constexpr int64_t kNeverS = 10'413'792'000;  // 2300-01-01
    return EntriesJson(served, [&](Json& entry) {
        entry["expires_at"] = OllamaTime(expires_s.value_or(kNeverS));
        entry["size_vram"] = served.on_cpu ? 0 : served.card.size_bytes;
        entry["context_length"] = served.context;
    });
}

std::optional<ApiError> OllamaTags(const Json&, const Served& served, Json& answer) {
    answer = {{"models", OllamaTagEntries(served)}};
    return {};
}

std::optional<ApiError> OllamaRunning(const Json&, const Served& served, Json& answer) {
    answer = {{"models", OllamaRunningEntries(served, {})}};
    return {};
}

std::optional<ApiError> OllamaVersion(const Json&, const Served&, Json& answer) {
    answer = {{"version", kOllamaVersion}, {"weft", WEFT_VERSION}};
    return {};
}

std::optional<ApiError> OllamaShow(const Json& body, const Served& served, Json& answer) {
    Fields fields(body);
    std::optional<ApiError> error;
    const OllamaModel model = ReadOllamaModel(fields, served, error);
    if (error) return error;
    const std::string& name = served.NameOf(model.adapter);
    Json info = served.card.info;
    // The server's context, which may be shorter than the model's training context.
    const std::string context = fmt::format("{}.context_length", served.card.family);
    info[context] = served.context;
    answer = {{"modelfile", fmt::format("# Served by Weft\nFROM {}\n", TaggedName(name))},
              {"parameters", ParameterLines(served)},
              {"template", served.card.chat_template},
              {"details", DetailsJson(served, model.adapter)},
              {"model_info", std::move(info)},
              {"capabilities", CapabilitiesJson(served)},
              {"modified_at", ModifiedText(served)}};
    return {};
}

std::optional<ApiError> OllamaRefuse(const Json&, const Served& served, Json&) {
    return ApiError{501,
                    fmt::format("this server serves only the models it was started with ({}); it "
                                "cannot create, copy, upload or delete models. Start 'weft serve' "
                                "with another model, or with --lora NAME=FOLDER for adapters",
                                served.name),
                    "", "not_implemented"};
}

// Answers as Ollama does for a model that is already present. Requests for other models fail
// earlier.
std::optional<ApiError> PlanOllamaPull(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    std::optional<ApiError> error;
    const OllamaModel model = ReadOllamaModel(fields, served, error);
    const bool stream = fields.Bool("stream", true);
    if (error && error->status == 404) {
        error->message += fmt::format(
            ", and cannot pull others: run 'weft pull MODEL' on the server's machine, then start "
            "'weft serve' with that model");
    }
    if (error || fields.error()) return error ? error : fields.error();
    if (!stream) {
        plan.reply = R"({"status":"success"})";
        return {};
    }
    const std::string digest = ModelDigest(served, model.adapter);
    plan.reply = fmt::format(
        "{{\"status\":\"pulling manifest\"}}\n"
        "{{\"status\":\"pulling {}\",\"digest\":\"sha256:{}\",\"total\":{},\"completed\":{}}}\n"
        "{{\"status\":\"verifying sha256 digest\"}}\n"
        "{{\"status\":\"writing manifest\"}}\n"
        "{{\"status\":\"success\"}}\n",
        digest.substr(0, 12), digest, served.card.size_bytes, served.card.size_bytes);
    plan.reply_type = "application/x-ndjson";
    return {};
}

}  // namespace weft::serve
