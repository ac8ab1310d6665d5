// weft models: the architectures that run, those that are refused, and the names of their models.
// docs/models.md holds the two tables.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "cli/commands.h"
#include "hub/short_names.h"
#include "model/model.h"
#include "model_files/refused.h"
#include "plan/names.h"
#include "plan/shapes.h"

namespace weft::cli {
namespace {

constexpr const char* kModelsFooter =
    "'weft plan' takes each NAME. A short name beside NAME means that Weft knows a repository\n"
    "with GGUF files of the model. Any other file of a supported architecture runs, too.\n"
    "\n"
    "Examples:\n"
    "  weft models                 (what runs, and what does not)\n"
    "  weft models qwen3.5         (names and sizes)\n"
    "  weft models Qwen/Qwen3-8B   (whether a model of the Hub runs)\n"
    "  weft models deepseek4       (why a model is refused)\n"
    "  weft models --json";

struct ModelsFlags {
    std::string word;
    bool json = false;
};

// A model that `weft plan` finds by name.
struct NamedModel {
    std::string name, architecture, short_name;  // short_name: may be empty
    double billions = 0;                         // of parameters
};

// Short names by the main name of the model.
std::map<std::string, std::string> ShortNamesOfModels() {
    std::map<std::string, std::string> names;
    for (const hub::ShortName& name : hub::ShortNames()) {
        const auto known = plan::FindShape(name.name);
        if (known && known->variant.empty()) names.emplace(known->model, name.name);
    }
    return names;
}

// Models that run, each under its main name.
Result<std::vector<NamedModel>> NamedModels() {
    std::map<std::string, std::string> short_names = ShortNamesOfModels();
    std::vector<NamedModel> models;
    for (const std::string& name : plan::ShapeNames()) {
        const auto known = plan::FindShape(name);
        if (!known || known->model != name || !known->runs) continue;
        WEFT_ASSIGN(const auto shape, plan::OpenShape(name));
        WEFT_ASSIGN(const std::string architecture, shape->meta().String("general.architecture"));
        double count = 0;
        for (const auto& tensor : shape->tensors()) {
            count += static_cast<double>(tensor.rows) * static_cast<double>(tensor.cols);
        }
        models.push_back({name, architecture, short_names[name], count * 1e-9});
    }
    return models;
}

// The rows of refused.h whose architecture does not run.
std::vector<model_files::RefusedModel> Refused() {
    std::vector<model_files::RefusedModel> refused;
    for (const model_files::RefusedModel& model : model_files::RefusedModels()) {
        if (!model::IsSupported(std::string(model.architecture))) refused.push_back(model);
    }
    return refused;
}

std::string ArchitectureOf(const model_files::RefusedModel& model) {
    return std::string(model.architecture.empty() ? model.model_type : model.architecture);
}

std::string ModelTables() {
    std::string text =
        "| Architecture | Models | Beyond the usual | Tested as |\n|---|---|---|---|\n";
    for (const model::Family& family : model::Families()) {
        text += fmt::format("| `{}` | {} | {} | {} |\n", family.architecture, family.models,
                            family.features, family.tested);
    }
    text +=
        "\nThese do not run yet:\n\n| Architecture | Models | What they need |\n|---|---|---|\n";
    for (const model_files::RefusedModel& model : Refused()) {
        text +=
            fmt::format("| `{}` | {} | {} |\n", ArchitectureOf(model), model.models, model.needs);
    }
    return text;
}

// "DeepSeek V4.1" and "deepseek-v4.1" are one name; "Qwen 3.8" and "qwen3-8b" differ by the dot.
std::string Bare(std::string_view name) {
    std::string bare = LowerCase(name);
    std::erase_if(bare, [](char c) { return c == ' ' || c == '-' || c == '_'; });
    return bare;
}

// Whether any of the words contains `word`.
bool Holds(const std::string& word, std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](std::string_view each) {
        return Bare(each).find(Bare(word)) != std::string::npos;
    });
}

// A family and its models that contain the word; all models if the family itself contains it.
std::string FamilyText(const model::Family& family, const std::string& word,
                       const std::vector<NamedModel>& models) {
    const bool whole = Holds(word, {family.architecture, family.models});
    std::string text;
    for (const NamedModel& model : models) {
        if (model.architecture != family.architecture) continue;
        if (!whole && !Holds(word, {model.name, model.short_name})) continue;
        const std::string run =
            model.short_name.empty() ? "" : fmt::format("weft run {}", model.short_name);
        text += fmt::format("  {:<30} {:>8.2f} B  {}", model.name, model.billions, run);
        text.erase(text.find_last_not_of(' ') + 1);
        text += "\n";
    }
    if (text.empty() && !whole) return {};
    return fmt::format("{}: {}\n{}", family.architecture, family.models, text);
}

// The word to look for: of a repository (Qwen/Qwen3-8B-GGUF) the model, or the name without OWNER.
std::string SoughtWord(std::string word) {
    while (word.ends_with('/')) word.pop_back();
    const size_t slash = word.rfind('/');
    if (slash == word.npos) return LowerCase(word);
    const auto known = plan::FindShape(word);
    return known && known->runs ? known->model : LowerCase(word.substr(slash + 1));
}

Status PrintMatching(const ModelsFlags& flags) {
    WEFT_ASSIGN(const std::vector<NamedModel> models, NamedModels());
    const std::string word = SoughtWord(flags.word);
    std::string text;
    for (const model::Family& family : model::Families()) {
        text += FamilyText(family, word, models);
    }
    for (const model_files::RefusedModel& model : Refused()) {
        if (!Holds(word, {model.architecture, model.model_type, model.models})) continue;
        text += fmt::format("{}: {}: does not run yet; it needs {}\n", ArchitectureOf(model),
                            model.models, model.needs);
    }
    if (text.empty()) {
        return MakeError(ErrorCode::kNotFound,
                         "no known architecture or model has '{}' in its name. 'weft models' lists "
                         "the architectures",
                         flags.word);
    }
    PrintOut("{}", text);
    return {};
}

Status PrintAll(const ModelsFlags& flags) {
    WEFT_ASSIGN(const std::vector<NamedModel> models, NamedModels());
    const std::string word = SoughtWord(flags.word);
    Json list = Json::array();
    for (const model::Family& family : model::Families()) {
        if (!word.empty() && FamilyText(family, word, models).empty()) continue;
        Json names = Json::array();
        for (const NamedModel& model : models) {
            if (model.architecture != family.architecture) continue;
            Json one = {{"name", model.name}, {"billions", model.billions}};
            if (!model.short_name.empty()) one["short_name"] = model.short_name;
            names.push_back(std::move(one));
        }
        list.push_back({{"architecture", family.architecture},
                        {"models", family.models},
                        {"runs", true},
                        {"features", family.features},
                        {"tested", family.tested},
                        {"names", std::move(names)}});
    }
    for (const model_files::RefusedModel& model : Refused()) {
        if (!Holds(word, {model.architecture, model.model_type, model.models})) continue;
        list.push_back({{"architecture", ArchitectureOf(model)},
                        {"models", model.models},
                        {"runs", false},
                        {"needs", model.needs}});
    }
    PrintJson(list);
    return {};
}

Status RunModels(ModelsFlags& flags) {
    if (flags.json) return PrintAll(flags);
    if (!flags.word.empty()) return PrintMatching(flags);
    PrintOut("{}", ModelTables());
    return {};
}

}  // namespace

void AddModels(const Command& app, int& status) {
    auto flags = std::make_shared<ModelsFlags>();
    const Command command = app.AddCommand(
        "models", "List the supported architectures, and names and sizes of models", kModelsFooter);
    command.AddOption(
        "WORD", flags->word,
        "Show only architectures and models whose name contains this word; or the model "
        "of OWNER/NAME on the Hub");
    SetJsonCallback(command, flags, status, RunModels);
}

}  // namespace weft::cli
