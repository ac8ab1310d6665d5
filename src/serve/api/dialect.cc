#include "serve/api/dialect.h"

#include <fmt/format.h>

#include <random>

#include "base/json_digits.h"
#include "serve/http/message.h"

namespace weft::serve {

std::string Dump(const Json& json) {
    return DumpJson(json);
}

std::string Quoted(std::string_view text) {
    return Dump(Json(text));
}

std::string OpenAiError(const ApiError& error) {
    return ErrorBody(error.status, OpenAiMessage(error), error.param, error.code);
}

std::string OpenAiMessage(const ApiError& error) {
    if (!error.full) return error.message;
    const FullContext& full = *error.full;
    const bool usual =
        error.param == "messages" || error.param == "prompt" || error.param == "input";
    const std::string what = usual ? "your " + error.param : "'" + error.param + "'";
    return fmt::format(
        "This model's maximum context length is {} tokens. However, {} resulted in {}{} tokens{}. "
        "Please reduce the length of {}, or start the server with a larger --ctx.",
        full.context, what, full.at_least ? "at least " : "", full.tokens,
        full.answers ? ", and the answer needs at least one more" : "", what);
}

namespace {

std::string WithLetters(std::string_view prefix, int count) {
    constexpr std::string_view kLetters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    thread_local std::mt19937_64 random{std::random_device{}()};
    std::string id(prefix);
    for (int i = 0; i < count; ++i) id += kLetters[random() % kLetters.size()];
    return id;
}

}  // namespace

std::string MakeId(std::string_view prefix) {
    return WithLetters(prefix, 24);
}

std::string MakeCallId(const Served& served, std::string_view prefix) {
    return served.forms.tools.short_ids ? WithLetters("", 9) : MakeId(prefix);
}

}  // namespace weft::serve
