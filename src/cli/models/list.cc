// weft list, weft rm: list and remove the models in the cache folder.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/home_folder.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/commands.h"
#include "hub/choose.h"
#include "hub/inventory.h"
#include "hub/short_names.h"
#include "model_files/model_file.h"

namespace weft::cli {
namespace {

constexpr const char* kListFooter =
    "The cache folder is the one that huggingface_hub uses ($HF_HUB_CACHE, $HF_HOME/hub,\n"
    "~/.cache/huggingface/hub). GGUF files in Weft's own (~/.cache/weft) follow with their paths.\n"
    "Other commands, such as 'weft run', take NAME as MODEL.\n\n"
    "Examples:\n"
    "  weft list\n"
    "  weft list --json\n"
    "  weft list --names";

constexpr const char* kRmFooter =
    "MODEL may also be the path of a GGUF file in ~/.cache/weft. Files that another revision of "
    "the\n"
    "repository shares stay.\n\n"
    "Examples:\n"
    "  weft rm Qwen/Qwen3-8B-GGUF:Q4_K_M\n"
    "  weft rm qwen3:8b --yes\n"
    "  weft rm Qwen/Qwen3-8B-GGUF          (all models of its revision main)";

struct ListFlags {
    bool names = false, json = false;
};

struct RmFlags {
    std::vector<std::string> models;
    bool yes = false, json = false;
};

// GGUF files in Weft's own cache folder: the model of ./quickstart. A path is their name.
std::vector<hub::CachedModel> FilesOfQuickstart() {
    std::vector<hub::CachedModel> models;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(CacheFolder(), none)) {
        struct stat info {};
        const std::string path = entry.path();
        if (!path.ends_with(".gguf") || ::stat(path.c_str(), &info) != 0) continue;
        if (!S_ISREG(info.st_mode)) continue;
        hub::CachedModel& model = models.emplace_back();
        model.path = path;
        model.files = {path};
        model.bytes = model.held_bytes = static_cast<uint64_t>(info.st_size);
        model.modified_s = info.st_mtime;
        model.used_s = std::max(info.st_atime, info.st_mtime);
    }
    std::ranges::sort(models, {}, &hub::CachedModel::path);
    return models;
}

std::string ArgumentOf(const hub::CachedModel& model) {
    return model.spec.name.empty() ? model.path : model.spec.Text();
}

// The type of most weights; "" if the file can't be read.
std::string TypeOfWeights(const std::string& path) {
    const auto source = model_files::OpenModel(path);
    return source.ok() ? std::string((*source)->MainType()) : std::string();
}

std::string TypeOf(const hub::CachedModel& model) {
    const std::string in_name = hub::TypeInName(model.path);
    if (!in_name.empty() || model.state == hub::HeldState::kUnfetched) return in_name;
    return TypeOfWeights(model.path);
}

Json ModelToJson(const hub::CachedModel& model) {
    constexpr const char* kTime = "%Y-%m-%dT%H:%M:%SZ";
    return {{"name", ArgumentOf(model)},
            {"state", hub::HeldStateName(model.state)},
            {"type", TypeOf(model)},
            {"bytes", model.bytes},
            {"held_bytes", model.held_bytes},
            {"modified", UtcText(model.modified_s, kTime)},
            {"used", UtcText(model.used_s, kTime)},
            {"commit", model.commit},
            {"path", model.path}};
}

// The name, made safe for a terminal.
std::string NameOf(const hub::CachedModel& model) {
    return Printable(ArgumentOf(model));
}

// The note beside the size; "" for a complete model.
std::string Remark(const hub::CachedModel& model) {
    switch (model.state) {
        case hub::HeldState::kWhole: return {};
        case hub::HeldState::kShard:
            return fmt::format("  a shard: {} of it", BytesText(model.held_bytes));
        case hub::HeldState::kPartial:
        case hub::HeldState::kUnfetched:
            return fmt::format("  incomplete: {} of it; 'weft pull {}' resumes",
                               BytesText(model.held_bytes), NameOf(model));
    }
    return {};
}

void PrintModelTable(const std::vector<hub::CachedModel>& models) {
    size_t width = 4;
    for (const hub::CachedModel& model : models) {
        width = std::max(width, NameOf(model).size());
    }
    PrintOut("{:<{}}  {:>10}  {:<8}  {}\n", "NAME", width, "SIZE", "TYPE", "USED");
    for (const hub::CachedModel& model : models) {
        const std::string type = Printable(TypeOf(model));
        PrintOut("{:<{}}  {:>10}  {:<8}  {}{}\n", NameOf(model), width, BytesText(model.bytes),
                 type.empty() ? "-" : type, UtcText(model.used_s, "%Y-%m-%d"), Remark(model));
    }
}

void PrintNames(bool json) {
    Json all = Json::object();
    for (const hub::ShortName& name : hub::ShortNames()) {
        if (json) {
            all[std::string(name.name)] = name.model;
        } else {
            PrintOut("{:<22} {}\n", name.name, name.model);
        }
    }
    if (json) PrintJson(all);
}

// Lists the models, and warns about unreadable ones.
Result<std::vector<hub::CachedModel>> ModelsThere(const hub::Config& config) {
    std::vector<std::string> unread;
    WEFT_ASSIGN(std::vector<hub::CachedModel> models, hub::ListCached(config, &unread));
    for (const std::string& line : unread) PrintErr("weft: warning: {}\n", Printable(line));
    return models;
}

Status List(ListFlags& flags) {
    if (flags.names) return PrintNames(flags.json), Status();
    WEFT_ASSIGN(const hub::Config config, hub::ConfigFromEnvironment());
    WEFT_ASSIGN(std::vector<hub::CachedModel> models, ModelsThere(config));
    std::ranges::move(FilesOfQuickstart(), std::back_inserter(models));
    if (flags.json) {
        Json list = Json::array();
        for (const hub::CachedModel& model : models) list.push_back(ModelToJson(model));
        PrintJson(list);
    } else if (models.empty()) {
        PrintErr("weft: no models in {}. 'weft pull NAME' fetches one, such as qwen3:8b.\n",
                 config.cache);
    } else {
        PrintModelTable(models);
    }
    return {};
}

// Asks the user at the terminal to confirm.
bool Agrees(const std::vector<hub::CachedModel>& models) {
    for (const hub::CachedModel& model : models) {
        PrintErr("{}  {}\n", NameOf(model), BytesText(model.held_bytes));
    }
    PrintErr("Remove {}? [y/N] ", models.size() == 1 ? "it" : "them");
    char line[16] = "";
    if (std::fgets(line, sizeof line, stdin) == nullptr) return false;
    const std::string_view answer = line;
    return answer == "y\n" || answer == "Y\n" || answer == "yes\n" || answer == "Yes\n";
}

Result<std::vector<hub::CachedModel>> ModelsToRemove(const RmFlags& flags,
                                                     const hub::Config& config) {
    WEFT_ASSIGN(const std::vector<hub::CachedModel> all, ModelsThere(config));
    std::vector<hub::CachedModel> models;
    for (const std::string& word : flags.models) {
        std::vector<hub::CachedModel> named = FilesOfQuickstart();
        const std::string path = std::filesystem::absolute(word).lexically_normal();
        std::erase_if(named, [&](const hub::CachedModel& file) { return file.path != path; });
        if (named.empty()) {
            const std::string spec = SpecOfModel(word);
            WEFT_ASSIGN(named, hub::MatchCached(all, spec.empty() ? word : spec));
        }
        for (const hub::CachedModel& model : named) {
            const bool twice = std::ranges::any_of(models, [&](const hub::CachedModel& other) {
                return other.path == model.path && other.files == model.files;
            });
            if (!twice) models.push_back(model);
        }
    }
    return models;
}

Result<hub::Removed> RemoveModel(const hub::Config& config, const hub::CachedModel& model) {
    if (!model.spec.name.empty()) return hub::RemoveCached(config, model);
    std::error_code error;
    const bool link = std::filesystem::is_symlink(model.path, error);
    std::filesystem::remove(model.path, error);
    if (error)
        return MakeError(ErrorCode::kIo, "cannot remove {}: {}", model.path, error.message());
    return hub::Removed{.freed_bytes = link ? 0 : model.held_bytes};
}

Status Remove(RmFlags& flags) {
    WEFT_ASSIGN(const hub::Config config, hub::ConfigFromEnvironment());
    WEFT_ASSIGN(const std::vector<hub::CachedModel> models, ModelsToRemove(flags, config));
    if (!flags.yes) {
        const bool asks = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
        if (!asks) {
            return MakeError(ErrorCode::kUsage,
                             "cannot ask whether to remove {}, because standard input is not a "
                             "terminal: add --yes",
                             models.size() == 1 ? ArgumentOf(models[0]) : "these models");
        }
        if (!Agrees(models)) return MakeError(ErrorCode::kCancelled, "nothing was removed");
    }
    Json removed = Json::array();
    for (const hub::CachedModel& model : models) {
        WEFT_ASSIGN(const hub::Removed done, RemoveModel(config, model));
        removed.push_back({{"name", ArgumentOf(model)},
                           {"freed_bytes", done.freed_bytes},
                           {"kept_bytes", done.kept_bytes}});
        if (flags.json) continue;
        const std::string kept = done.kept_bytes == 0
                                     ? ""
                                     : fmt::format("; {} stay, because another revision uses them",
                                                   BytesText(done.kept_bytes));
        PrintOut("removed {} ({} freed{})\n", NameOf(model), BytesText(done.freed_bytes), kept);
    }
    if (flags.json) PrintJson({{"removed", removed}});
    return {};
}

}  // namespace

void AddListCommand(const Command& app, int& status) {
    auto flags = std::make_shared<ListFlags>();
    const Command command =
        app.AddCommand("list", "List the models in the cache folder", kListFooter);
    command.AddFlag("--names", flags->names, "List the short names and their models");
    SetJsonCallback(command, flags, status, List);
}

void AddRm(const Command& app, int& status) {
    auto flags = std::make_shared<RmFlags>();
    const Command command = app.AddCommand("rm", "Remove models from the cache folder", kRmFooter);
    command
        .AddOption("MODEL", flags->models,
                   "Model to remove, as 'weft list' prints it; without FILE or TYPE, all models of "
                   "the repository's revision (main)")
        .Required();
    command.AddFlag("-y,--yes", flags->yes, "Do not ask for confirmation");
    SetJsonCallback(command, flags, status, Remove);
}

}  // namespace weft::cli
