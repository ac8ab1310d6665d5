#include "model_files/folder_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/bare_words.h"
#include "base/dangling_link.h"
#include "base/file.h"
#include "base/json.h"
#include "model_files/gguf_folder.h"

namespace weft::model_files {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 10'000, kMostListed = 6;
constexpr uint64_t kMostAdapterBytes = 1 << 20;

struct Names {
    std::vector<std::string> files, folders;  // sorted

    bool Has(std::string_view file) const { return std::ranges::binary_search(files, file); }
    bool HasFolder(std::string_view folder) const {
        return std::ranges::binary_search(folders, folder);
    }
    // The first file name that satisfies `fits`; empty: none.
    template <typename Fits>
    std::string First(const Fits& fits) const {
        const auto found = std::ranges::find_if(files, fits);
        return found == files.end() ? "" : *found;
    }
};

// left: how many more names may be listed.
Names List(const fs::path& folder, size_t& left) {
    Names names;
    std::error_code ignored;
    fs::directory_iterator at(folder, ignored);
    for (; !ignored && at != fs::directory_iterator() && left > 0; at.increment(ignored)) {
        --left;
        std::error_code unknown;
        const bool is_folder = at->is_directory(unknown);
        (is_folder ? names.folders : names.files).push_back(at->path().filename().string());
    }
    std::ranges::sort(names.files);
    std::ranges::sort(names.folders);
    return names;
}

std::string Joined(const std::vector<std::string>& names) {
    const size_t shown = std::min(names.size(), kMostListed);
    const std::string more =
        names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
    return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + shown, ", "), more);
}

// ---- Kinds --------------------------------------------------------------------------------------

std::string AdapterKind(const fs::path& folder, const Names& names) {
    if (!names.Has("adapter_config.json")) return "";
    std::string base = "its base model";
    const auto text = ReadTextFile(folder / "adapter_config.json", kMostAdapterBytes);
    const auto config = text.ok() ? JsonOrDiscarded(WithoutBareWords(*text)) : nlohmann::json();
    const auto named = config.is_object() ? config.find("base_model_name_or_path") : config.end();
    if (config.is_object() && named != config.end() && named->is_string()) {
        base = fmt::format("its base model ('{}')", named->get<std::string>().substr(0, 200));
    }
    return fmt::format(
        "a LoRA adapter, not a model. Give {} as the MODEL, and this folder with --lora; 'weft "
        "merge' merges an adapter into a model",
        base);
}

// Files that identify the whole folder.
std::string MarkedKind(const Names& names) {
    const auto original = [](const std::string& name) { return name.starts_with("consolidated."); };
    if (names.Has("model_index.json")) {
        return "a diffusers pipeline, which generates images. Weft runs language models";
    }
    if (names.Has("params.json") || !names.First(original).empty()) {
        return "a model in the original format of Meta or Mistral (params.json, consolidated.*). "
               "Get it in Hugging Face format (config.json and model.safetensors), or as a GGUF "
               "file";
    }
    return "";
}

// Ollama's files are named sha256-DIGEST.
std::string OllamaKind(const fs::path& folder, const Names& names, size_t& left) {
    const auto is_blob = [](const std::string& name) { return name.starts_with("sha256-"); };
    const bool above = names.HasFolder("blobs") && names.HasFolder("manifests");
    const fs::path blobs = above ? folder / "blobs" : folder;
    const Names inside = above ? List(blobs, left) : names;
    if (!above && inside.First(is_blob).empty()) return "";
    std::vector<std::string> models;
    for (const std::string& name : inside.files) {
        if (!is_blob(name)) continue;
        const auto file = File::Open(blobs / name);
        std::array<std::byte, 4> magic{};
        if (!file.ok() || !file->ReadAt(0, magic).ok()) continue;
        const std::string_view begin(reinterpret_cast<const char*>(magic.data()), magic.size());
        if (begin == "GGUF") models.push_back(blobs / name);
    }
    return fmt::format(
        "Ollama's model store. 'ollama show --modelfile NAME' prints the path of a model's file, "
        "which Weft can run{}",
        models.empty() ? "" : ": " + Joined(models));
}

// Models in subfolders, as in the Hub's cache (snapshots/REVISION), in trainers' output
// (checkpoint-500) and in repositories with several types.
std::string NestedKind(const fs::path& folder, const Names& names, size_t& left) {
    std::vector<std::string> models;
    for (const std::string& name : names.folders) {
        if (name.starts_with(".")) continue;
        if (HoldsModel(folder / name)) {
            models.push_back(folder / name);
            continue;
        }
        for (const std::string& inner : List(folder / name, left).folders) {
            if (HoldsModel(folder / name / inner)) models.push_back(folder / name / inner);
        }
    }
    if (models.empty()) return "";
    return fmt::format("a folder with models in its subfolders. Give one of them: {}",
                       Joined(models));
}

// A snapshot of the Hub's cache whose blobs are missing.
std::string LinkKind(const fs::path& folder, const Names& names) {
    for (const std::string& name : names.files) {
        const auto ends = [&](const char* end) { return name.ends_with(end); };
        if (!std::ranges::any_of(std::array{".safetensors", ".bin", ".gguf"}, ends)) continue;
        const std::string link = DanglingLink(folder / name);
        if (!link.empty()) return fmt::format("a folder whose {} {}", name, link);
    }
    return "";
}

std::string PartKind(const Names& names) {
    constexpr std::string_view kParts[] = {".incomplete", ".part",     ".partial",
                                           ".aria2",      ".download", ".crdownload"};
    const std::string part = names.First([&](const std::string& name) {
        return std::ranges::any_of(kParts, [&](auto end) { return name.ends_with(end); });
    });
    return part.empty() ? "" : fmt::format("an incomplete download ({}). Start it again", part);
}

// Weights in formats that Weft reads only under other names, or not at all.
std::string WeightsKind(const Names& names) {
    const auto ending = [&](std::string_view end) {
        return names.First([&](const std::string& name) { return name.ends_with(end); });
    };
    const std::string safe = ending(".safetensors");
    if (!safe.empty() && safe.find("-of-0") != safe.npos) {
        return fmt::format("a model ({}) without model.safetensors.index.json. Get that file, too",
                           safe);
    }
    if (!safe.empty() && names.Has("config.json")) {
        return fmt::format(
            "a model whose weights have an unexpected name ({}). Rename that file to "
            "model.safetensors",
            safe);
    }
    if (!safe.empty()) {
        return fmt::format("weights ({}) without a config.json. Get the model's other files, too",
                           safe);
    }
    struct Format {
        std::string_view end, name;
    };
    constexpr Format kFormats[] = {
        {".bin", "PyTorch"},     {".pt", "PyTorch"},     {".pth", "PyTorch"},
        {".ckpt", "PyTorch"},    {".distcp", "PyTorch"}, {".h5", "TensorFlow"},
        {".msgpack", "Flax"},    {".onnx", "ONNX"},      {".tflite", "TensorFlow Lite"},
        {".engine", "TensorRT"}, {".nemo", "NeMo"},      {".npz", "NumPy or old MLX"},
        {".litertlm", "LiteRT"}, {".task", "MediaPipe"}, {".ggml", "GGML"}};
    for (const auto& [end, name] : kFormats) {
        const std::string file = ending(end);
        if (file.empty()) continue;
        const bool torch = name == "PyTorch";
        return fmt::format("a model as {} files ({}). Get it as safetensors or GGUF{}", name, file,
                           torch ? ", or convert it: transformers' save_pretrained writes "
                                   "safetensors"
                                 : "");
    }
    return "";
}

}  // namespace

std::string FolderKind(const std::string& folder) {
    size_t left = kMostNames;
    const Names names = List(folder, left);
    if (names.files.empty() && names.folders.empty()) {
        return "an empty folder. Was the download completed? 'weft pull OWNER/NAME' fetches a "
               "model";
    }
    std::string kind = AdapterKind(folder, names);
    if (kind.empty()) kind = MarkedKind(names);
    if (kind.empty()) kind = OllamaKind(folder, names, left);
    if (kind.empty()) kind = NestedKind(folder, names, left);
    if (kind.empty()) kind = LinkKind(folder, names);
    if (kind.empty()) kind = PartKind(names);
    if (kind.empty()) kind = WeightsKind(names);
    if (!kind.empty()) return kind;
    if (names.Has("config.json")) {
        return "a model's configuration without its weights. Was the download completed?";
    }
    if (names.Has("tokenizer.json") || names.Has("tokenizer.model")) {
        return "a tokenizer without a model. Was the download completed?";
    }
    return "";
}

bool HoldsModel(const std::string& folder) {
    return IsListed(fs::path(folder) / "config.json") || IsGgufFolder(folder);
}

}  // namespace weft::model_files
