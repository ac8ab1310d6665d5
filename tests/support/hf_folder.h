// Tiny Hugging Face folders, as tools/make_hf_golden.py wrote them and transformers ran them.
//
// The golden file's metadata has each case's config.json and the names, dtypes and shapes of its
// tensors. The values come from the formula of tiny_model.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "model_files/hf/folder.h"
#include "support/paths.h"
#include "support/read_bytes.h"
#include "support/tiny_model.h"
#include "tensor/half.h"

namespace weft::support {

// A tensor of a safetensors file written by a test.
struct SafeBytes {
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
};

template <typename T>
std::vector<std::byte> BytesOfValues(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

// One file with these tensors, in order of their names.
inline std::vector<std::byte> SafetensorsFile(const std::map<std::string, SafeBytes>& tensors) {
    nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
    std::vector<std::byte> data;
    for (const auto& [name, tensor] : tensors) {
        header[name] = {{"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
        data.insert(data.end(), tensor.data.begin(), tensor.data.end());
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::vector<std::byte> file(8 + text.size());
    std::memcpy(file.data(), &length, 8);
    std::memcpy(file.data() + 8, text.data(), text.size());
    file.insert(file.end(), data.begin(), data.end());
    return file;
}

// Names of the golden files in a folder of tests/data; each is a case.
inline std::vector<std::string> CasesIn(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(TestData(folder))) {
        names.push_back(file.path().stem());
    }
    std::ranges::sort(names);
    return names;
}

inline void WriteText(const std::string& path, const std::string& text) {
    ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
}

// Writes model.safetensors, or `shards` files and their index.
inline void WriteTensors(const std::string& folder, const std::map<std::string, SafeBytes>& tensors,
                         int shards = 1) {
    if (shards == 1) {
        ASSERT_TRUE(WriteFile(folder + "/model.safetensors", SafetensorsFile(tensors)).ok());
        return;
    }
    std::vector<std::map<std::string, SafeBytes>> parts(static_cast<size_t>(shards));
    nlohmann::json map;
    size_t next = 0;
    for (const auto& [name, tensor] : tensors) {
        const size_t part = next++ % parts.size();
        parts[part][name] = tensor;
        map[name] = fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, shards);
    }
    for (size_t part = 0; part < parts.size(); ++part) {
        const std::string name =
            fmt::format("{}/model-{:05}-of-{:05}.safetensors", folder, part + 1, shards);
        ASSERT_TRUE(WriteFile(name, SafetensorsFile(parts[part])).ok());
    }
    const nlohmann::json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", map}};
    WriteText(folder + "/model.safetensors.index.json", index.dump());
}

// Reads one golden file, or all of a list.
class HfGolden {
  public:
    // tests/data/hf_golden.safetensors, and tests/data/hf, where newer cases have a file each.
    HfGolden() : HfGolden(TestData("/hf_golden.safetensors")) {
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(TestData("/hf"), none)) {
            Read(entry.path());
        }
    }
    explicit HfGolden(const std::string& path) { Read(path); }

    bool Has(const std::string& name) const { return tensors_.contains(name); }
    std::vector<float> Floats(const std::string& name) const { return tensors_.at(name); }
    std::vector<int32_t> Tokens(const std::string& name) const {
        const std::vector<float> floats = Floats(name + "/tokens");
        return {floats.begin(), floats.end()};
    }
    std::string Text(const std::string& key) const { return texts_.at(key); }
    // Metadata keys with this end, without the end.
    std::vector<std::string> Cases(std::string_view end = "/config") const {
        std::vector<std::string> cases;
        for (const auto& [key, value] : texts_) {
            if (key.ends_with(end)) cases.push_back(key.substr(0, key.find('/')));
        }
        return cases;
    }

    // Tensors of a case, with values by the formula.
    std::map<std::string, SafeBytes> Tensors(const std::string& name) const {
        const double norm_base = std::stod(Text(name + "/norm_base"));
        std::map<std::string, SafeBytes> tensors;
        const auto table = nlohmann::json::parse(Text(name + "/tensors"));
        for (const auto& [tensor, entry] : table.items()) {
            const auto shape = entry[1].get<std::vector<int64_t>>();
            tensors[tensor] = entry[0] == "I64" ? MakeNumbers(tensor, shape, entry[2])
                                                : Make(tensor, entry[0], shape, norm_base);
        }
        return tensors;
    }

    void Write(const std::string& name, const std::string& folder, int shards = 1) const {
        std::filesystem::create_directories(folder);
        WriteText(folder + "/config.json", Text(name + "/config"));
        WriteTensors(folder, Tensors(name), shards);
    }

    // A tensor with values by the formula.
    static SafeBytes Make(const std::string& name, const std::string& dtype,
                          const std::vector<int64_t>& shape, double norm_base) {
        int64_t count = 1;
        for (const int64_t dim : shape) count *= dim;
        const double scale =
            shape.size() <= 1 ? 0.25 : std::sqrt(3.0 / static_cast<double>(shape.back()));
        const bool norm = name.find("norm") != name.npos || name.find("Norm") != name.npos;
        const double base = norm ? norm_base : 0.0;
        std::vector<float> values(static_cast<size_t>(count));
        const Stream stream(name);
        float* to = values.data();  // (operators of vectors are calls at -O0)
        for (size_t i = 0, end = values.size(); i < end; ++i) {
            to[i] = static_cast<float>(base + stream[i] * scale);
        }
        if (dtype == "F32") return {dtype, shape, BytesOfValues(values)};
        std::vector<uint16_t> halves;
        for (const float value : values) {
            halves.push_back(dtype == "F16" ? F32ToF16(value) : F32ToBF16(value));
        }
        return {dtype, shape, BytesOfValues(halves)};
    }

  private:
    // Numbers from 0 to below - 1.
    static SafeBytes MakeNumbers(const std::string& name, const std::vector<int64_t>& shape,
                                 int64_t below) {
        int64_t count = 1;
        for (const int64_t dim : shape) count *= dim;
        std::vector<int64_t> values;
        const Stream stream(name);
        for (int64_t i = 0; i < count; ++i) {
            const double share = stream[static_cast<size_t>(i)] * 0.5 + 0.5;
            values.push_back(static_cast<int64_t>(share * static_cast<double>(below)));
        }
        return {"I64", shape, BytesOfValues(values)};
    }

    void Read(const std::string& path) {
        const std::string bytes = ReadBytes(path);
        EXPECT_GT(bytes.size(), 8u) << "no golden file";
        uint64_t length = 0;
        std::memcpy(&length, bytes.data(), 8);
        const auto header = nlohmann::json::parse(bytes.substr(8, length));
        for (const auto& [name, entry] : header.items()) {
            if (name == "__metadata__" || entry["dtype"] != "F32") continue;
            const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
            std::vector<float>& values = tensors_[name];
            values.resize((end - begin) / sizeof(float));
            std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
        }
        for (const auto& [key, text] : header.at("__metadata__").items()) texts_[key] = text;
    }

    std::map<std::string, std::vector<float>> tensors_;
    std::map<std::string, std::string> texts_;
};

// The folder is refused with an error that has `word` and names config.json.
inline void ExpectRefusedFolder(const std::string& folder, std::string_view word) {
    const auto source = model_files::hf::OpenFolder(folder);
    ASSERT_FALSE(source.ok());
    for (const std::string_view part : {word, std::string_view("config.json")}) {
        EXPECT_NE(source.error().message.find(part), std::string::npos) << source.error().message;
    }
}

}  // namespace weft::support
