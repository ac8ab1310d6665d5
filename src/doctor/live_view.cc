#include "doctor/live_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

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

class LiveView : public HostView {
  public:
    explicit LiveView(const LiveOptions& options)
        : options_(options),
          begin_ns_(NowNs()),
          end_(Deadline::In(options.total_ms)),
          host_(RunProbe("hostname").text) {}

    std::string host() const override { return host_; }
    bool Complete() const override { return true; }
    Reading Read(const std::string& path) override {
        const auto [kept, fresh] = kept_.try_emplace(path);
        if (fresh) kept->second = ReadFile("/" + path);
        return kept->second;
    }
    Reading Link(const std::string& path) override {
        std::array<char, 4096> target;
        const ssize_t got = ::readlink(("/" + path).c_str(), target.data(), target.size());
        if (got < 0) return errno == EINVAL ? Reading{} : FromErrno();
        return {ReadState::kFound, std::string(target.data(), static_cast<size_t>(got))};
    }
    std::vector<std::string> List(const std::string& path) override {
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
        std::ranges::sort(names);
        return names;
    }
    Reading Command(const std::string& words) override {
        const std::string path = CommandPath(words);
        commands_[path] = words;
        const auto [kept, fresh] = kept_.try_emplace(path);
        if (fresh) kept->second = Run(words);
        return kept->second;
    }
    Reading Probe(const std::string& name) override {
        if (!options_.measure && name.starts_with("measure/")) return {};
        const auto [kept, fresh] = kept_.try_emplace("probe/" + name);
        if (fresh) kept->second = RunProbe(name);
        return kept->second;
    }
    Reading Later(const std::string& path) override {
        const int64_t left_ns = begin_ns_ + kSampleNs - NowNs();
        if (left_ns > 0) ::usleep(static_cast<useconds_t>(left_ns / 1000));
        const auto command = commands_.find(path);
        return command == commands_.end() ? ReadFile("/" + path) : Run(command->second);
    }
    std::map<std::string, std::string> Unread() const override {
        std::map<std::string, std::string> unread;
        for (const auto& [path, reading] : kept_) {
            if (reading.refused()) unread[path] = reading.text;
            if (path == "cmd/dmesg" && reading.found() && Trim(reading.text).empty()) {
                unread[path] = kEmptyLog;
            }
        }
        return unread;
    }

  private:
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
    std::string host_;
    std::map<std::string, Reading> kept_;
    std::map<std::string, std::string> commands_;  // by path
};

}  // namespace

std::unique_ptr<HostView> MakeLiveView(const LiveOptions& options) {
    return std::make_unique<LiveView>(options);
}

}  // namespace weft::doctor
