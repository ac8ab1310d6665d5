#include "serve/describe.h"

#include <fmt/format.h>

#include <ctime>

#include "engine/device_options.h"
#include "engine/sampler_defaults.h"
#include "model/hyper.h"
#include "model_files/read_tokenizer.h"

namespace weft::serve {
namespace {

// Reads the pooling from the model's file. GGUF's ARCHITECTURE.pooling_type: 0 none, 1 mean, 2
// first token, 3 last token, 4 reranker.
Result<std::optional<engine::Pooling>> PoolingOf(const model_files::ModelSource& source) {
    const model_files::Metadata& meta = source.meta();
    WEFT_ASSIGN(const std::string architecture, meta.StringOr("general.architecture", ""));
    WEFT_ASSIGN(const int64_t type, meta.IntOr(architecture + ".pooling_type", 0, 100, 0));
    std::optional<engine::Pooling> said;
    if (type == 1) said = engine::Pooling::kMean;
    if (type == 2) said = engine::Pooling::kCls;
    if (type == 3) said = engine::Pooling::kLast;
    return said;
}

}  // namespace

std::string NameOfModel(const std::string& words) {
    std::string name = words;
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    if (const size_t slash = name.rfind('/');
        slash != std::string::npos && !name.starts_with("hf:"))
        name.erase(0, slash + 1);
    if (name.ends_with(".gguf")) name.resize(name.size() - 5);
    return name;
}

Status NameModels(const ServerOptions& options, Served& served) {
    served.name = options.name.empty() ? NameOfModel(options.job.model) : options.name;
    served.path = options.job.model;
    served.aliases = options.aliases;
    served.aliases.push_back(options.job.model);
    for (const auto& [name, folder] : options.job.adapters) {
        if (served.AdapterOf(name) == 0) {
            return MakeError(ErrorCode::kUsage,
                             "--lora {}={}: '{}' is the model's own name (see --name, --alias)",
                             name, folder, name);
        }
        served.adapters.push_back(name);
    }
    return {};
}

Status ReadHints(const ServerOptions& options, const model_files::ModelSource& source,
                 Served& served) {
    WEFT_ASSIGN(const std::optional<engine::Pooling> said, PoolingOf(source));
    served.generates = !options.embeddings && !said.has_value();
    served.pooling = options.pooling.value_or(said.value_or(engine::Pooling::kLast));
    model_files::SamplingHints hints;
    if (options.model_sampling) hints = engine::HintsOf(source);
    engine::Apply(hints, served.sampling);
    engine::Apply(options.sampling, served.sampling);
    served.sampling_by = fmt::format("{} ({})", engine::SamplingText(served.sampling),
                                     engine::SamplingOrigin(hints, options.sampling));
    return engine::CheckSampler(served.sampling);
}

void ReadTemplate(const model_files::ModelSource& source, const tokenizer::Tokenizer& tokenizer,
                  Served& served) {
    const model_files::Metadata& meta = source.meta();
    served.fim = FindFim(meta, tokenizer);
    auto chat = chat::Chat::Load(meta, tokenizer);
    if (chat.ok()) {
        served.family = chat::FamilyOf(*chat);
        served.chat.emplace(std::move(*chat));
        served.forms = chat::FindForms(*served.chat);
        const chat::TemplateCapabilities& form = served.forms.tools;
        served.call_frame =
            chat::FindCallFrame(*served.chat, form, chat::CallFamily(served.family, form));
    } else {
        served.chat_error = chat.error().message;
    }
    served.card = DescribeModel(source, served.path, served.chat ? &*served.chat : nullptr);
}

Result<Served> DescribeUnloaded(const ServerOptions& options) {
    Served served;
    served.created_s = std::time(nullptr);
    WEFT_TRY(NameModels(options, served));
    WEFT_ASSIGN(const auto source, model_files::OpenModel(options.job.model));
    WEFT_ASSIGN(served.hyper, model::ReadHyper(*source));
    WEFT_ASSIGN(const auto tokenizer, model_files::LoadTokenizer(*source));
    WEFT_TRY(ReadHints(options, *source, served));
    served.context = options.job.ctx;
    ReadTemplate(*source, *tokenizer, served);
    served.chat.reset();
    served.on_cpu = engine::MayAllUseHostCores(options.job.device);
    return served;
}

}  // namespace weft::serve
