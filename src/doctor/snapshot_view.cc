// The view that reads a snapshot, and the view that records one.
#include <algorithm>
#include <filesystem>
#include <set>

#include "doctor/save.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "doctor/unreadable.h"

namespace weft::doctor {
namespace {

constexpr const char* kUnread = "unread";
constexpr const char* kHostName = "probe/hostname";
constexpr const char* kComplete = "probe/complete";

class SnapshotView : public HostView {
  public:
    SnapshotView(SnapshotFiles files, std::string name) : files_(std::move(files)) {
        const auto named = files_.find(kHostName);
        const std::string_view told = named == files_.end() ? "" : Trim(named->second);
        host_ = told.empty() || told.size() > 255 ? std::move(name) : std::string(told);
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
    std::string host() const override { return host_; }
    bool Complete() const override { return files_.contains(kComplete); }
    Reading Read(const std::string& path) override {
        if (const auto found = files_.find(path); found != files_.end()) {
            return Whole(found->second);
        }
        if (const auto found = unread_.find(path); found != unread_.end()) {
            return {ReadState::kRefused, found->second};
        }
        return {};
    }
    Reading Link(const std::string& path) override {
        for (const std::string& name : {"link/" + path + kLinkEnd, "link/" + path}) {
            if (Reading reading = Read(name); reading.state != ReadState::kAbsent) return reading;
        }
        // In a copied folder, the link itself.
        return Complete() ? Reading{} : Read(path);
    }
    std::vector<std::string> List(const std::string& path) override {
        const std::string prefix = path + "/";
        std::vector<std::string> names;
        for (auto it = files_.lower_bound(prefix); it != files_.end(); ++it) {
            if (!it->first.starts_with(prefix)) break;
            std::string name = it->first.substr(prefix.size());
            name.resize(std::min(name.find('/'), name.size()));
            if (!name.empty()) names.push_back(std::move(name));
        }
        std::ranges::sort(names);  // "a.b" sorts between "a" and "a/b"
        names.erase(std::unique(names.begin(), names.end()), names.end());
        if (names.size() > kMostListed) names.resize(kMostListed);
        return names;
    }
    Reading Command(const std::string& words) override { return Read(CommandPath(words)); }
    Reading Probe(const std::string& name) override { return Read("probe/" + name); }
    Reading Later(const std::string& path) override { return Read("later/" + path); }
    std::map<std::string, std::string> Unread() const override {
        auto unread = unread_;
        const auto log = files_.find("cmd/dmesg");
        if (log != files_.end() && Trim(log->second).empty()) unread[log->first] = kEmptyLog;
        return unread;
    }

  private:
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
            const Said said = own ? Said::kOutput : WhatIsSaid(it->second);
            if (said == Said::kNotShown) {
                unread_[it->first] = std::string(Lines(Trim(it->second))[0].substr(0, 200));
            }
            it = said == Said::kOutput ? std::next(it) : files_.erase(it);
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
    std::string host_;
    bool ends_lines_ = false;
};

}  // namespace

std::unique_ptr<HostView> MakeSnapshotView(SnapshotFiles files, std::string name) {
    return std::make_unique<SnapshotView>(std::move(files), std::move(name));
}

Result<std::unique_ptr<HostView>> OpenSnapshot(const std::string& path) {
    WEFT_ASSIGN(SnapshotFiles files, ReadSnapshotFiles(path));
    const std::filesystem::path given(path);
    std::string name = (given.has_filename() ? given : given.parent_path()).filename().string();
    return MakeSnapshotView(std::move(files), std::move(name));
}

Reading RecordingView::Keep(const std::string& path, Reading reading) {
    if (reading.found()) {
        files_[path] = reading.text;
    } else if (reading.refused()) {
        unread_[path] = reading.text;
    }
    return reading;
}

Reading RecordingView::Read(const std::string& path) {
    return Keep(path, view_.Read(path));
}

Reading RecordingView::Link(const std::string& path) {
    return Keep("link/" + path, view_.Link(path));
}

std::vector<std::string> RecordingView::List(const std::string& path) {
    std::vector<std::string> names = view_.List(path);
    for (const std::string& name : names) files_.try_emplace(path + "/" + name + "/");
    return names;
}

Reading RecordingView::Command(const std::string& words) {
    return Keep(CommandPath(words), view_.Command(words));
}

Reading RecordingView::Probe(const std::string& name) {
    return Keep("probe/" + name, view_.Probe(name));
}

Reading RecordingView::Later(const std::string& path) {
    return Keep("later/" + path, view_.Later(path));
}

SnapshotFiles RecordingView::Take() {
    Pseudonyms names;
    return SavedFiles(TakeRaw(), names);
}

SnapshotFiles RecordingView::TakeRaw() {
    Keep(kHostName, {ReadState::kFound, view_.host() + "\n"});
    if (view_.Complete()) files_[kComplete] = "yes\n";
    std::string unread;
    for (const auto& [path, why] : unread_) {
        unread += path + ": ";
        for (char c : why) unread += c == '\n' ? ' ' : c;
        unread += '\n';
    }
    if (!unread.empty()) files_[kUnread] = std::move(unread);
    return std::move(files_);
}

}  // namespace weft::doctor
