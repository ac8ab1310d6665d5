#include "serve/api/openai/openai_dialect.h"

#include <fmt/format.h>

#include <ctime>
#include <string_view>

namespace weft::serve {

OpenAiDialect::OpenAiDialect(const Served& served, int32_t adapter, const char* prefix,
                             const char* object, const char* chunk, bool usage, bool logprobs)
    : served_(served),
      usage_(usage),
      logprobs_(logprobs),
      model_(served.NameOf(adapter)),
      id_(MakeId(prefix)),
      object_(object),
      created_(std::time(nullptr)),
      head_(fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":{})", id_, chunk,
                        created_, Quoted(model_))) {}

void OpenAiDialect::End(const Usage& usage, std::string& out) {
    if (usage_) {
        out += fmt::format("data: {},\"choices\":[],\"usage\":{}}}\n\n", head_,
                           Dump(UsageJson(usage)));
    }
    out += "data: [DONE]\n\n";
}

void OpenAiDialect::Fail(const ApiError& error, std::string& out) {
    out += fmt::format("data: {}\n\ndata: [DONE]\n\n", OpenAiError(error));
}

void OpenAiDialect::Chunk(int choice, const std::string& said, const std::string& logprobs,
                          const std::string& finish, std::string& out) const {
    out +=
        fmt::format(R"(data: {},"choices":[{{"index":{},{},"logprobs":{},"finish_reason":{}}}]{}}})"
                    "\n\n",
                    head_, choice, said, logprobs, finish, usage_ ? R"(,"usage":null)" : "");
}

std::string OpenAiDialect::Whole(const std::vector<Choice>& choices, const Usage& usage) {
    Json list = Json::array();
    // As in vLLM: a completion has prompt log-probabilities in each choice, a chat answer once,
    // beside the choices.
    const bool apart = std::string_view(object_) == "chat.completion";
    for (const Choice& choice : choices) {
        Json json{{"index", list.size()}};
        json.update(ChoiceJson(choice, list.size()));
        json.emplace("finish_reason", choice.end.finish);  // only if the choice did not set it
        if (prompt_logprobs && !apart) {
            json["prompt_logprobs"] = PromptLogprobs(served_.tokenizer(), choice.prompt);
        }
        list.push_back(std::move(json));
    }
    Json answer{{"id", id_},
                {"object", object_},
                {"created", created_},
                {"model", model_},
                {"choices", std::move(list)},
                {"usage", UsageJson(usage)},
                {"system_fingerprint", "weft-" WEFT_VERSION}};
    if (prompt_logprobs && apart) {
        answer["prompt_logprobs"] = PromptLogprobs(served_.tokenizer(), choices[0].prompt);
    }
    return Dump(answer);
}

}  // namespace weft::serve
