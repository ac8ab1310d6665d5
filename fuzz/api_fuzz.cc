// libFuzzer target: any body at any path of the API, in each of its dialects. The engine must
// accept every planned request, and errors must be valid JSON. The first line is the path, the rest
// is the body.
//     build-fuzz/fuzz/api_fuzz -max_total_time=60 -malloc_limit_mb=512 fuzz/corpus/api
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "serve/api/gate.h"
#include "serve/api/media.h"
#include "serve/api/openai/input_items.h"
#include "serve/api/openai/response_store.h"
#include "serve/api/routes.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::serve {
namespace {

// A tiny model that fills in middles, has an adapter's name and takes conversations with tools.
struct Fixture {
    test::TempDir dir;
    std::unique_ptr<engine::Engine> engine;
    Served served;
    std::shared_ptr<ResponseStore> responses = std::make_shared<ResponseMemory>(4, 1 << 20);

    Fixture() {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.layers = 1;
        support::WriteTinyGguf(dir / "m", file);
        engine::Job job;
        job.model = dir / "m";
        job.threads = 1;
        job.ctx = 256;
        job.self_test = false;
        job.outputs = model::Outputs::kBoth;
        engine = engine::Engine::Start({}, job, {4, true}).value();
        served.engine = engine.get();
        served.name = "m";
        served.aliases = {"other"};
        served.longest_piece_bytes = 16;
        served.fim = {.prefix = 1, .suffix = 2, .middle = 3};
        served.chat = chat::Chat::Make("", engine->tokenizer()).value();
        served.family = chat::FamilyOf(*served.chat);
        served.forms = chat::FindForms(*served.chat);
        served.constraints = std::make_unique<Constraints>(engine->tokenizer());
        responses->Put("", "resp_1",
                       {{{"id", "resp_1"}, {"output", Json::array()}},
                        std::make_shared<const Json>(Json::array(
                            {{{"type", "message"}, {"role", "user"}, {"content", "hi"}}})),
                        1000});
    }
};

void CheckError(std::string_view path, const ApiError& error) {
    WEFT_CHECK(error.status >= 400 && error.status < 600 && !error.message.empty());
    const std::string body = ErrorFor(path, error);
    WEFT_CHECK(Json::accept(body) && body.find('\n') == body.npos);
}

void CheckRequest(const Fixture& at, std::string_view path, const engine::Request& request) {
    for (const int32_t id : request.prompt) WEFT_CHECK(id >= 0 && id < at.served.id_limit());
    const Status status = at.engine->Check(request);
    if (status.ok()) return;
    CheckError(path, ErrorOf(status.error()));
}

void CheckPlan(const Fixture& at, std::string_view path, const Route& route, const Json& body) {
    AnswerPlan plan;
    plan.responses = at.responses;
    if (const auto error = route.plan(body, at.served, plan)) return CheckError(path, *error);
    if (!plan.reply.empty()) return;
    WEFT_CHECK(!plan.choices.empty() && plan.dialect != nullptr && plan.n >= 1);
    for (const ChoicePlan& choice : plan.choices) CheckRequest(at, path, choice.request);
}

void Check(std::string_view path, std::string_view text) {
    static const Fixture at;
    if (path == "input_items") {
        Json answer;
        const auto error = InputItems(*at.responses->Get("", "resp_1"), text, answer);
        return error ? CheckError("/v1/responses/x/input_items", *error)
                     : WEFT_CHECK(answer.is_object());
    }
    const Route* const route = FindRoute("POST", path);
    if (route == nullptr) return;
    Json body;
    if (const auto error = ParseBody(text, body)) return CheckError(path, *error);
    NoteMedia(body, text.size() % 2 == 0);
    if (route->plan != nullptr) return CheckPlan(at, path, *route, body);
    if (route->reply != nullptr) {
        Json answer;
        const auto error = route->reply(body, at.served, answer);
        return error ? CheckError(path, *error) : WEFT_CHECK(answer.is_object());
    }
    if (route->embed == nullptr) return;  // a path of slots
    EmbeddingPlan plan;
    if (const auto error = route->embed(body, at.served, plan)) return CheckError(path, *error);
    for (const engine::Request& request : plan.requests) CheckRequest(at, path, request);
}

}  // namespace
}  // namespace weft::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const size_t line = std::min(input.find('\n'), size);
    weft::serve::Check(input.substr(0, line), input.substr(std::min(line + 1, size)));
    return 0;
}
