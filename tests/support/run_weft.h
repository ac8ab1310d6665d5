// Runs the weft program and captures standard output and standard error separately.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "support/limits.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/read_bytes.h"

namespace weft::support {

using Words = std::vector<std::string>;

#if defined(__SANITIZE_THREAD__)
inline constexpr int64_t kPatienceMs = 600'000;
#else
inline constexpr int64_t kPatienceMs = 120'000;
#endif

struct Ran {
    int status = -1;  // exit status, or 128 + signal
    std::string out, err;
    double seconds = 0;
    // Standard output as one JSON value; null and a test failure if it is not JSON.
    nlohmann::json Json() const {
        nlohmann::json json = nlohmann::json::parse(out, nullptr, false);
        EXPECT_FALSE(json.is_discarded()) << out << err;
        return json.is_discarded() ? nlohmann::json() : json;
    }
};

inline std::string ReadAll(int fd) {
    std::string text;
    char buffer[65536];
    ::lseek(fd, 0, SEEK_SET);
    for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<size_t>(got));
    }
    ::close(fd);
    return text;
}

// WEFT_LOG=debug reports the ranks' phases on standard error.
inline bool InPhase(const std::string& err, int rank, const std::string& phase) {
    const std::string who = rank == 0 ? "weft: " : "[rank " + std::to_string(rank) + "] ";
    return err.find(who + "debug: phase: " + phase + "\n") != std::string::npos;
}
// The lines that do not contain `words`.
inline std::string WithoutLines(const std::string& err, std::string_view words) {
    std::istringstream lines(err);
    std::string rest;
    for (std::string line; std::getline(lines, line);) {
        if (line.find(words) == std::string::npos) rest += line + "\n";
    }
    return rest;
}
inline std::string WithoutDebug(const std::string& err) {
    return WithoutLines(err, "debug: ");
}

// Removes the address sanitizer's message about a thread that ends during its leak search.
inline std::string WithoutSearch(std::string text) {
#if defined(__SANITIZE_ADDRESS__)
    const char* const said = "Unable to get registers from thread ";
    for (size_t at; (at = text.find(said)) != std::string::npos;) {
        const size_t begin = text.rfind('\n', at) + 1;  // start of the line; npos + 1 is 0
        text.erase(begin, text.find('\n', at) + 1 - begin);
    }
#endif
    return text;
}

// A command line for tests. `weft run` is greedy unless the test chooses sampling, so that answers
// are comparable. Ranks get a long deadline, because a busy machine may delay one for seconds;
// tests of lost ranks set their own --timeout-ms.
inline Words TestWords(Words arguments) {
    const auto has = [&](std::string_view word) { return std::ranges::count(arguments, word) > 0; };
    const bool samples = has("--temp") || has("--seed") || has("--greedy") || has("--help");
    if (!arguments.empty() && arguments[0] == "run" && !samples) arguments.push_back("--greedy");
    const bool many = has("--tp") || has("--pp") || has("--dp") || has("--local");
    static constexpr std::string_view kCommands[] = {"run", "logits", "perplexity", "train"};
    const bool computes = !arguments.empty() && std::ranges::count(kCommands, arguments[0]) > 0;
    if (!many || !computes || has("--timeout-ms") || has("estimate")) return arguments;
    arguments.insert(arguments.end(), {"--timeout-ms", "60000"});
    return arguments;
}

// A running weft. The destructor kills it and its children.
class Weft {
  public:
    explicit Weft(const Words& arguments, const Words& environment = {}) {
        const Words given = TestWords(arguments);
        Words words = {support::WeftProgram()};
        words.insert(words.end(), given.begin(), given.end());
        out_ = ::memfd_create("out", MFD_CLOEXEC);
        err_ = ::memfd_create("err", MFD_CLOEXEC);
        // All ranks write to these files. Without O_APPEND a memfd has no position lock, and two
        // lines written at once would overlap.
        for (int fd : {out_, err_}) WEFT_CHECK(::fcntl(fd, F_SETFL, O_APPEND) == 0);
        begin_ns_ = NowNs();
        pid_ = ::fork();
        WEFT_CHECK(pid_ >= 0 && out_ >= 0 && err_ >= 0);
        if (pid_ != 0) return;
        ::setpgid(0, 0);
        ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
        ::dup2(out_, STDOUT_FILENO);
        ::dup2(err_, STDERR_FILENO);
        // Keeps records of test models out of the user's cache.
        ::setenv("XDG_CACHE_HOME", "/dev/null", 1);
        for (const std::string& entry : environment) ::putenv(::strdup(entry.c_str()));
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        ::execv(argv[0], argv.data());
        ::_exit(126);
    }
    Weft(const Weft&) = delete;
    Weft& operator=(const Weft&) = delete;
    ~Weft() {
        if (pid_ > 0 && !waited_) [[maybe_unused]]
            const Ran ignored = Wait(0);
    }

    pid_t pid() const { return pid_; }
    // Standard output and standard error so far.
    std::string Out() const { return Peek(out_); }
    std::string Err() const { return Peek(err_); }

    // Waits for the end; kills after `most_ms` on a machine of normal speed.
    Ran Wait(int64_t most_ms = kPatienceMs) {
        const Deadline deadline = test::Limit(most_ms);
        pollfd end{test::EndOf(pid_), POLLIN, 0};
        if (::poll(&end, 1, static_cast<int>(deadline.left_ms())) <= 0) {
            ::kill(-pid_, SIGKILL);
            ::kill(pid_, SIGKILL);
        }
        ::close(end.fd);
        int status = 0;
        ::waitpid(pid_, &status, 0);
        waited_ = true;
        Ran ran;
        ran.seconds = static_cast<double>(NowNs() - begin_ns_) * 1e-9;
        ran.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        ran.out = ReadAll(out_);
        ran.err = WithoutSearch(ReadAll(err_));
        return ran;
    }

  private:
    static std::string Peek(int fd) {
        std::string text(1 << 20, '\0');
        const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
        text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
        return text;
    }

    pid_t pid_ = -1;
    int out_ = -1, err_ = -1;
    int64_t begin_ns_ = 0;
    bool waited_ = false;
};

inline Ran RunWeft(const Words& arguments, const Words& environment = {}) {
    return Weft(arguments, environment).Wait();
}

inline Words operator+(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

// Splits at blanks.
inline Words SplitWords(const std::string& text) {
    Words words;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

struct Matrix {
    size_t rows = 0, cols = 0;
    std::vector<float> data;
    std::span<const float> Row(size_t row) const {
        return std::span(data).subspan(row * cols, cols);
    }
};

// Reads a float32 .npy file without Weft's own reader.
inline Matrix ReadNpy(const std::string& path) {
    const std::string bytes = ReadBytes(path);
    Matrix matrix;
    EXPECT_GT(bytes.size(), 10u) << path;
    if (bytes.size() <= 10) return matrix;
    EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t head = static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
    const std::string dictionary = bytes.substr(10, head);
    EXPECT_EQ((10 + head) % 64, 0u);
    EXPECT_NE(dictionary.find("'descr': '<f4'"), std::string::npos) << dictionary;
    EXPECT_NE(dictionary.find("'fortran_order': False"), std::string::npos) << dictionary;
    const size_t shape = dictionary.find("'shape': (");
    EXPECT_EQ(
        std::sscanf(dictionary.c_str() + shape, "'shape': (%zu, %zu)", &matrix.rows, &matrix.cols),
        2);
    matrix.data.resize((bytes.size() - 10 - head) / sizeof(float));
    EXPECT_EQ(matrix.data.size(), matrix.rows * matrix.cols);
    std::memcpy(matrix.data.data(), bytes.data() + 10 + head, matrix.data.size() * sizeof(float));
    return matrix;
}

// |a - b| / |b|; infinite if shapes differ, NaN if a number is NaN.
inline double RelativeL2(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size() || a.empty()) return INFINITY;
    double difference = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - b[i];
        difference += d * d;
        size += static_cast<double>(b[i]) * b[i];
    }
    return std::sqrt(difference / size);
}

}  // namespace weft::support
