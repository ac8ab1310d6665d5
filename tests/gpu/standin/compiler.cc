// A stand-in for nvrtc (or, with STANDIN_HIP, for hiprtc), for tests: the host's compiler compiles
// the text with emulated.h to a shared library, which driver.cc loads. STANDIN_CACHE keeps compiled
// texts, in files named by a hash of text and header.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#ifdef STANDIN_HIP
#define NAME(name) hiprtc##name
#else
#define NAME(name) nvrtc##name
#endif
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kFailed = 6;  // NVRTC_ERROR_COMPILATION

struct Program {
    std::string text, log, code;
};

std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t Hash(const std::string& text) {  // FNV-1a
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

// Runs the compiler. Its messages go to the file `log`.
bool Run(const std::vector<std::string>& words, const std::string& log) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0600);
    pid_t child = 0;
    int status = 1;
    if (::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0) {
        ::waitpid(child, &status, 0);
    }
    ::posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

}  // namespace

EXPORT int NAME(Version)(int* major, int* minor) {
    *major = 12;
    *minor = static_cast<int>(Hash(Read(STANDIN_HEADER)) % 1'000'000'000);
    return 0;
}
EXPORT const char* NAME(GetErrorString)(int) {
    return "COMPILATION_FAILED";
}
#ifndef STANDIN_HIP
// WEFT_STANDIN_NEWEST: the last architecture that the compiler knows.
int Known(int* out) {
    const char* newest = std::getenv("WEFT_STANDIN_NEWEST");
    int count = 0;
    for (const int one : {61, 75, 80, 86, 89, 90, 100, 120, 121}) {
        if (newest != nullptr && one > std::atoi(newest)) break;
        if (out != nullptr) out[count] = one;
        ++count;
    }
    return count;
}
EXPORT int nvrtcGetNumSupportedArchs(int* count) {
    *count = Known(nullptr);
    return 0;
}
EXPORT int nvrtcGetSupportedArchs(int* architectures) {
    Known(architectures);
    return 0;
}
#endif
EXPORT int NAME(CreateProgram)(void** out, const char* text, const char*, int, const char* const*,
                               const char* const*) {
    *out = new Program{text, {}, {}};
    return 0;
}
EXPORT int NAME(DestroyProgram)(void** program) {
    delete static_cast<Program*>(*program);
    *program = nullptr;
    return 0;
}
EXPORT int NAME(CompileProgram)(void* program, int, const char* const*) {
    auto& own = *static_cast<Program*>(program);
    ::mkdir(STANDIN_CACHE, 0755);
    const uint64_t hash = Hash(own.text + Read(STANDIN_HEADER));
    const std::string path = std::string(STANDIN_CACHE "/") + std::to_string(hash) + ".so";
    if (::access(path.c_str(), R_OK) != 0) {
        static std::atomic<int> number = 0;
        const std::string fresh =
            path + "." + std::to_string(::getpid()) + "." + std::to_string(++number);
        std::ofstream(fresh + ".cc") << own.text;
        const bool made = Run({STANDIN_CXX, "-std=c++20", "-O1", "-w", "-shared", "-fPIC",
                               "-fno-strict-aliasing", "-ffp-contract=off", "-DWEFT_EMULATED",
                               "-include", STANDIN_HEADER, fresh + ".cc", "-o", fresh},
                              fresh + ".log");
        own.log = Read(fresh + ".log");
        for (const char* rest : {".cc", ".log"}) ::unlink((fresh + rest).c_str());
        if (!made) return kFailed;
        ::rename(fresh.c_str(), path.c_str());
    }
    const std::string library = Read(path);
    const uint64_t bytes = library.size();
    own.code.assign("standin", 8);
    own.code.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    own.code += library;
    return 0;
}
EXPORT int NAME(GetProgramLogSize)(void* program, size_t* bytes) {
    *bytes = static_cast<Program*>(program)->log.size() + 1;
    return 0;
}
EXPORT int NAME(GetProgramLog)(void* program, char* out) {
    std::strcpy(out, static_cast<Program*>(program)->log.c_str());
    return 0;
}
#ifdef STANDIN_HIP
EXPORT int hiprtcGetCodeSize(void* program, size_t* bytes) {
#else
EXPORT int nvrtcGetCUBINSize(void* program, size_t* bytes) {
#endif
    *bytes = static_cast<Program*>(program)->code.size();
    return 0;
}
#ifdef STANDIN_HIP
EXPORT int hiprtcGetCode(void* program, char* out) {
#else
EXPORT int nvrtcGetCUBIN(void* program, char* out) {
#endif
    const std::string& code = static_cast<Program*>(program)->code;
    std::memcpy(out, code.data(), code.size());
    return 0;
}
