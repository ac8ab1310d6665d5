// A kernel of src/shaders, translated to C++ by gpu/spirv and compiled by the host's compiler with
// tests/gpu/standin/emulated.h; by night, with checks for undefined behavior.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpu/spirv/translate.h"
#include "shaders/shaders.h"
#include "support/nightly.h"

namespace weft::test {

using Constants = std::vector<gpu::spirv::Specialization>;

class EmulatedKernel {
  public:
    // Fails the test if the kernel can't be translated or compiled.
    EmulatedKernel(const std::string& name, const Constants& constants, uint32_t subgroup = 32,
                   gpu::spirv::Language language = gpu::spirv::Language::kCuda) {
        auto text =
            gpu::spirv::Translate({name, shaders::Find(name), constants, subgroup, language});
        if (!text.ok()) {
            ADD_FAILURE() << text.error().message;
            return;
        }
        text_ = std::move(*text);
        const auto folder = std::filesystem::path(::testing::TempDir()) /
                            ("weft_emulated_" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        const std::string source = folder / (name + ".cc"), library = folder / (name + ".so");
        std::ofstream(source) << text_.source;
        const std::string checks =
            Nightly() ? "-fsanitize=undefined -fno-sanitize-recover=undefined " : "";
        const std::string command =
            STANDIN_CXX " -std=c++20 -O1 -w -shared -fPIC -fno-strict-aliasing -ffp-contract=off " +
            checks + "-DWEFT_EMULATED -include " STANDIN_HEADER " " + source + " -o " + library;
        if (std::system(command.c_str()) != 0) {
            ADD_FAILURE() << "does not compile: " << command;
            return;
        }
        library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        launch_ = reinterpret_cast<Launch>(::dlsym(library_, (text_.entry + "_launch").c_str()));
        EXPECT_NE(launch_, nullptr) << ::dlerror();
        std::filesystem::remove_all(folder);
    }
    EmulatedKernel(const EmulatedKernel&) = delete;
    EmulatedKernel& operator=(const EmulatedKernel&) = delete;
    ~EmulatedKernel() {
        if (library_ != nullptr) ::dlclose(library_);
    }

    // Runs all workgroups. Args: the push constants.
    template <class Args>
    void Run(const Args& args, uint32_t x, uint32_t y = 1, uint32_t z = 1) const {
        ASSERT_NE(launch_, nullptr);
        ASSERT_GE(sizeof(Args), text_.args_bytes);
        const uint32_t first[3] = {}, grid[3] = {x, y, z}, stop = 0;
        const uint32_t* stop_word = &stop;
        Args copy = args;
        void* params[] = {&copy, const_cast<uint32_t*>(first), &stop_word};
        launch_(params, grid, text_.local_size.data());
    }

    const gpu::spirv::Text& text() const { return text_; }

  private:
    using Launch = void (*)(void**, const uint32_t*, const uint32_t*);
    gpu::spirv::Text text_;
    void* library_ = nullptr;
    Launch launch_ = nullptr;
};

inline uint64_t Address(const void* data) {
    return reinterpret_cast<uint64_t>(data);
}

}  // namespace weft::test
