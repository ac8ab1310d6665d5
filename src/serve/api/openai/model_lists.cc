#include "serve/api/openai/model_lists.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace weft::serve {
namespace {

std::string NamesOf(std::span<const Served> models) {
    std::string names;
    for (const Served& served : models) {
        for (size_t i = 0; i <= served.adapters.size(); ++i) {
            names += fmt::format("{}'{}'", names.empty() ? "" : ", ",
                                 served.NameOf(static_cast<int32_t>(i)));
        }
    }
    return names;
}

}  // namespace

Json ModelJson(const Served& served, int32_t adapter) {
    Json model{{"id", served.NameOf(adapter)},
               {"type", "model"},
               {"display_name", served.NameOf(adapter)},
               {"created_at", fmt::format("{:%FT%TZ}", fmt::gmtime(served.created_s))},
               {"object", "model"},
               {"created", served.created_s},
               {"owned_by", "weft"},
               {"max_model_len", served.context},
               {"lifecycle", "active"},
               {"max_input_tokens", served.context},
               {"max_tokens", served.context}};
    model["meta"] = {{"n_vocab", served.hyper.vocab},  {"n_ctx_train", served.hyper.context},
                     {"n_embd", served.hyper.hidden},  {"n_params", served.card.parameters},
                     {"size", served.card.size_bytes}, {"thinking", served.card.thinking}};
    if (adapter != 0) model["parent"] = served.name;
    return model;
}

Json ModelsJson(std::span<const Served> models) {
    Json list = Json::array();
    for (const Served& served : models) {
        for (size_t i = 0; i <= served.adapters.size(); ++i) {
            list.push_back(ModelJson(served, static_cast<int32_t>(i)));
        }
    }
    const Json first = list.front()["id"], last = list.back()["id"];
    return {{"object", "list"},
            {"data", std::move(list)},
            {"first_id", first},
            {"last_id", last},
            {"has_more", false}};
}

ApiError UnknownModel(std::string_view asked, std::span<const Served> models) {
    return {404,
            fmt::format("The model '{}' does not exist; this server has {}.", asked.substr(0, 200),
                        NamesOf(models)),
            "model", "model_not_found"};
}

ApiError UnknownOllamaModel(std::string_view asked, std::span<const Served> models) {
    return {404,
            fmt::format("model '{}' not found; this server has {}", asked.substr(0, 200),
                        NamesOf(models)),
            "model", "model_not_found"};
}

}  // namespace weft::serve
