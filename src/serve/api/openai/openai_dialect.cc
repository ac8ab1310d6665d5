#include "serve/api/openai/openai_dialect.h"

#include <fmt/format.h>

#include <ctime>
#include <string_view>
#include <utility>

#include "serve/api/llama/llama_dialect.h"

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
                          const std::string& finish, std::string& out) {
    std::string more;
    if (usage_) more += R"(,"usage":null)";
    if (progress_) more += fmt::format(R"(,"timings":{})", Dump(TimingsJson(*progress_)));
    if (const auto progress = std::exchange(prompt_progress_, std::nullopt)) {
        more += fmt::format(R"(,"prompt_progress":{})", Dump(PromptProgressJson(*progress)));
    }
    out +=
        fmt::format(R"(data: {},"choices":[{{"index":{},{},"logprobs":{},"finish_reason":{}}}]{}}})"
                    "\n\n",
                    head_, choice, said, logprobs, finish, more);
}

std::string OpenAiDialect::Whole(const std::vector<Choice>& choices, const Usage& usage) {
    std::string out =
        fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":{},"choices":[)", id_,
                    object_, created_, Quoted(model_));
    // As in vLLM: a completion has prompt log-probabilities in each choice, a chat answer once,
    // beside the choices.
    const bool apart = std::string_view(object_) == "chat.completion";
    const auto prompt_of = [&](const Choice& choice) {
        out += R"("prompt_logprobs":)";
        out += PromptLogprobs(served_.tokenizer(), choice.prompt);
        out += ',';
    };
    for (size_t i = 0; i < choices.size(); ++i) {
        Json json{{"index", i}};
        json.update(ChoiceJson(choices[i], i));
        json.emplace("finish_reason", choices[i].end.finish);  // only if the choice did not set it
        if (i > 0) out += ',';
        out += Dump(json);
        out.back() = ',';  // the object continues
        if (prompt_logprobs && !apart) prompt_of(choices[i]);
        out += R"("logprobs":)";
        out += logprobs_ ? LogprobsOf(choices[i], i) : "null";
        out += '}';
    }
    out += "],";
    if (prompt_logprobs && apart) prompt_of(choices[0]);
    if (timings) out += fmt::format(R"("timings":{},)", Dump(TimingsJson(usage)));
    out += fmt::format(R"("usage":{},"system_fingerprint":"weft-{}"}})", Dump(UsageJson(usage)),
                       WEFT_VERSION);
    return out;
}

}  // namespace weft::serve
