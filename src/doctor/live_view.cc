#include "doctor/live_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/deadline.h"
#include "doctor/probe.h"
#include "doctor/program.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

// Time between two readings of a counter.
constexpr int64_t kSampleNs = 1'000'000'000;

Reading FromErrno() {
    if (errno == ENOENT || errno == ENOTDIR || errno == ENODEV) return {};
    return {ReadState::kRefused, std::strerror(errno)};
}

Reading ReadFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return FromErrno();
    struct stat info {};
    Reading reading;
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        reading = {ReadState::kRefused, "not a regular file"};
    } else {
        reading.state = ReadState::kFound;
        std::array<char, 65536> buffer;
        while (reading.text.size() < kMostFileBytes) {
            const ssize_t got = ::read(fd, buffer.data(), buffer.size());
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) reading = FromErrno();
            if (got <= 0) break;
            reading.text.append(buffer.data(), static_cast<size_t>(got));
        }
        if (reading.text.size() > kMostFileBytes) reading.text.resize(kMostFileBytes);
    }
    ::close(fd);
    return reading;
}

Reading FromRun(const Result<Ran>& ran) {
    if (!ran.ok()) {
        if (ran.error().code == ErrorCode::kNotFound) return {};
        return {ReadState::kRefused, ran.error().message};
    }
    if (ran->status == 0 || !Trim(ran->out).empty()) return {ReadState::kFound, ran->out};
    const std::string_view said = Trim(ran->err);
    if (said.empty()) {
        return {ReadState::kRefused, "exit status " + std::to_string(ran->status)};
    }
    return {ReadState::kRefused, std::string(Lines(said)[0].substr(0, 200))};
}

Reading ReadLink(const std::string& path) {
    std::array<char, 4096> target;
    const ssize_t got = ::readlink(path.c_str(), target.data(), target.size());
    if (got < 0) return errno == EINVAL ? Reading{} : FromErrno();
    return {ReadState::kFound, std::string(target.data(), static_cast<size_t>(got))};
}

class LiveView : public HostView {
  public:
    explicit LiveView(const LiveOptions& options)
        : HostView(RunProbe("hostname").text),
          options_(options),
          begin_ns_(NowNs()),
          end_(Deadline::In(options.total_ms)) {}
    bool Complete() const override { return true; }

  private:
    Reading Fetch(const std::string& path) override {
        const size_t slash = path.find('/');
        const std::string kind = path.substr(0, slash), rest = path.substr(slash + 1);
        if (kind == "cmd") return Run(WordsOf(path));
        if (kind == "link") return ReadLink("/" + rest);
        if (kind == "probe") {
            const bool skipped = !options_.measure && rest.starts_with("measure/");
            return skipped ? Reading() : RunProbe(rest);
        }
        if (kind != "later") return ReadFile("/" + path);
        const int64_t left_ns = begin_ns_ + kSampleNs - NowNs();
        if (left_ns > 0) ::usleep(static_cast<useconds_t>(left_ns / 1000));
        const std::string words = WordsOf(rest);
        return words.empty() ? ReadFile("/" + rest) : Run(words);
    }
    std::vector<std::string> FetchNames(const std::string& path) override {
        std::vector<std::string> names;
        DIR* folder = ::opendir(("/" + path).c_str());
        if (folder == nullptr) return names;
        while (const dirent* entry = ::readdir(folder)) {
            const std::string_view name = entry->d_name;
            if (name != "." && name != ".." && names.size() < kMostListed) {
                names.emplace_back(name);
            }
        }
        ::closedir(folder);
        return names;
    }
    Reading Run(const std::string& words) const {
        if (end_.expired()) return {ReadState::kRefused, "no time left for it"};
        std::vector<std::string> argv;
        for (std::string_view word : Words(words)) argv.emplace_back(word);
        return FromRun(RunProgram(argv, Deadline::In(std::min(options_.command_ms, end_.left_ms())),
                                  kMostFileBytes * 4));
    }

    LiveOptions options_;
    int64_t begin_ns_;
    Deadline end_;
};

}  // namespace

std::unique_ptr<HostView> MakeLiveView(const LiveOptions& options) {
    return std::make_unique<LiveView>(options);
}

}  // namespace weft::doctor
