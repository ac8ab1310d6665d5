// The view that reads a snapshot.
#include <algorithm>
#include <filesystem>

#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "doctor/unreadable.h"

namespace weft::doctor {
namespace {

constexpr const char* kUnread = "unread";
constexpr const char* kComplete = "probe/complete";

class SnapshotView : public HostView {
  public:
    SnapshotView(SnapshotFiles files, std::string name)
        : HostView(NameIn(files, std::move(name))), files_(std::move(files)) {
        if (!Complete()) {
            NameCommands();
            Tidy();
        }
        ends_lines_ = Complete() || MostEndLines();
        const auto unread = files_.find(kUnread);
        if (unread == files_.end()) return;
        for (std::string_view line : Lines(unread->second)) {
            const size_t colon = line.find(": ");
            if (colon == std::string_view::npos) continue;
            unread_[std::string(line.substr(0, colon))] = line.substr(colon + 2);
        }
    }
    bool Complete() const override { return files_.contains(kComplete); }
    std::map<std::string, std::string> Unread() const override {
        auto unread = HostView::Unread();
        unread.insert(unread_.begin(), unread_.end());
        return unread;
    }

  private:
    static std::string NameIn(const SnapshotFiles& files, std::string name) {
        const auto named = files.find("probe/hostname");
        const std::string_view given = named == files.end() ? "" : Trim(named->second);
        return given.empty() || given.size() > 255 ? std::move(name) : std::string(given);
    }
    Reading Fetch(const std::string& path) override {
        const bool link = path.starts_with("link/");
        if (const auto found = files_.find(link ? path + kLinkEnd : path); found != files_.end()) {
            return Whole(found->second);
        }
        if (const auto found = unread_.find(path); found != unread_.end()) {
            return {ReadState::kRefused, found->second};
        }
        if (!link) return {};
        // An older version saved the link under this path, or the folder was copied with its links.
        if (const auto found = files_.find(path); found != files_.end()) {
            return Whole(found->second);
        }
        return Complete() ? Reading{} : Fetch(path.substr(5));
    }
    std::vector<std::string> FetchNames(const std::string& path) override {
        const std::string prefix = path + "/";
        std::vector<std::string> names;
        for (auto it = files_.lower_bound(prefix); it != files_.end(); ++it) {
            if (!it->first.starts_with(prefix)) break;
            std::string name = it->first.substr(prefix.size());
            name.resize(std::min(name.find('/'), name.size()));
            if (!name.empty()) names.push_back(std::move(name));
        }
        return names;
    }
    // In a handmade snapshot, an output may be named "cmd/ls -Z /var/log/opensm.log" or
    // "cmd/lspci_-vv.txt". It gets the name of CommandPath unless that exists.
    void NameCommands() {
        SnapshotFiles renamed;
        for (auto it = files_.begin(); it != files_.end();) {
            constexpr std::string_view kCommand = "cmd/";
            std::string_view words = it->first;
            if (!words.starts_with(kCommand) || words.ends_with('/')) {
                ++it;
                continue;
            }
            words.remove_prefix(kCommand.size());
            for (std::string_view end : {".txt", ".out"}) {
                if (words.ends_with(end)) words.remove_suffix(end.size());
            }
            std::string path = CommandPath(words);
            if (path == it->first || files_.contains(path)) {
                ++it;
                continue;
            }
            renamed.try_emplace(std::move(path), std::move(it->second));
            it = files_.erase(it);
        }
        files_.merge(renamed);
    }
    // A handmade snapshot may hold the shell's error instead of the program's output.
    void Tidy() {
        for (auto it = files_.begin(); it != files_.end();) {
            it->second = TidiedOutput(std::move(it->second));
            const bool own = it->first == kUnread || it->first.starts_with("probe/");
            const Said output = own ? Said::kOutput : ClassifyOutput(it->second);
            if (output == Said::kNotShown) {
                unread_[it->first] = std::string(Lines(Trim(it->second))[0].substr(0, 200));
            }
            it = output == Said::kOutput ? std::next(it) : files_.erase(it);
        }
    }
    // Most files of a handmade snapshot end with a newline.
    bool MostEndLines() const {
        size_t ended = 0, open = 0;
        for (const auto& [path, text] : files_) {
            if (!text.empty()) ++(text.ends_with('\n') ? ended : open);
        }
        return ended >= 3 && ended > 2 * open;
    }
    // If the other files end with a newline, a file without one was cut, maybe within a number.
    Reading Whole(std::string_view text) const {
        // One line that was written twice counts once.
        const size_t half = text.size() / 2;
        const bool twice = half > 1 && text.size() % 2 == 0 && text.find('\n') == half - 1 &&
                           text.substr(0, half) == text.substr(half);
        if (twice) text = text.substr(0, half);
        const size_t last = text.rfind('\n');
        const bool cut = ends_lines_ && last != text.npos && last + 1 < text.size();
        return {ReadState::kFound, std::string(cut ? text.substr(0, last + 1) : text), cut};
    }

    SnapshotFiles files_;
    std::map<std::string, std::string> unread_;
    bool ends_lines_ = false;
};

}  // namespace

bool IsSavedSnapshot(const std::string& path) {
    const auto files = ReadSnapshotFiles(path);
    return files.ok() && files->contains(kComplete);
}

std::unique_ptr<HostView> MakeSnapshotView(SnapshotFiles files, std::string name) {
    return std::make_unique<SnapshotView>(std::move(files), std::move(name));
}

Result<std::unique_ptr<HostView>> OpenSnapshot(const std::string& path) {
    WEFT_ASSIGN(SnapshotFiles files, ReadSnapshotFiles(path));
    const std::filesystem::path given(path);
    std::string name = (given.has_filename() ? given : given.parent_path()).filename().string();
    return MakeSnapshotView(std::move(files), std::move(name));
}

}  // namespace weft::doctor
