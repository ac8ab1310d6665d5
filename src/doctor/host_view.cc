#include "doctor/host_view.h"

#include <algorithm>

#include "doctor/text.h"

namespace weft::doctor {

void DropCoveredFolders(SnapshotFiles& files) {
    for (auto it = files.begin(); it != files.end();) {
        const auto next = std::next(it);
        const bool covered = it->first.ends_with('/') &&
                             (files.contains(it->first.substr(0, it->first.size() - 1)) ||
                              (next != files.end() && next->first.starts_with(it->first)));
        it = covered ? files.erase(it) : next;
    }
}

std::string CommandPath(std::string_view words) {
    std::string path(words);
    std::ranges::replace_if(
        path, [](char c) { return c == ' ' || c == '/'; }, '_');
    return "cmd/" + path;
}

Reading HostView::Read(const std::string& path) {
    const auto [answer, fresh] = answers_.try_emplace(path);
    if (fresh) answer->second = Fetch(path);
    return answer->second;
}

Reading HostView::Command(const std::string& words) {
    const std::string path = CommandPath(words);
    commands_.try_emplace(path, words);
    return Read(path);
}

std::string HostView::WordsOf(const std::string& path) const {
    const auto command = commands_.find(path);
    return command == commands_.end() ? "" : command->second;
}

std::vector<std::string> HostView::List(const std::string& path) {
    const auto [folder, fresh] = folders_.try_emplace(path);
    if (fresh) {
        std::vector<std::string> names = FetchNames(path);
        std::ranges::sort(names);
        names.erase(std::unique(names.begin(), names.end()), names.end());
        if (names.size() > kMostListed) names.resize(kMostListed);
        folder->second = std::move(names);
    }
    return folder->second;
}

std::string HostView::Text(const std::string& path) {
    const Reading reading = Read(path);
    return reading.found() ? std::string(Trim(reading.text)) : std::string();
}

std::optional<double> HostView::Number(const std::string& path) {
    return doctor::Number(Text(path));
}

bool HostView::Has(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return false;
    const std::vector<std::string> names = List(path.substr(0, slash));
    return std::ranges::binary_search(names, path.substr(slash + 1));
}

std::map<std::string, std::string> HostView::Unread() const {
    std::map<std::string, std::string> unread;
    for (const auto& [path, reading] : answers_) {
        if (reading.refused()) unread[path] = reading.text;
        if (path == "cmd/dmesg" && reading.found() && Trim(reading.text).empty()) {
            unread[path] = "empty; 'sudo weft doctor' may read more";
        }
    }
    return unread;
}

SnapshotFiles HostView::Recorded() const {
    SnapshotFiles files;
    std::string unread;
    for (const auto& [path, names] : folders_) {
        for (const std::string& name : names) files[path + "/" + name + "/"];
    }
    for (const auto& [path, reading] : answers_) {
        if (reading.found()) files[path] = reading.text;
        if (!reading.refused()) continue;
        std::string why = reading.text;
        std::ranges::replace(why, '\n', ' ');
        unread += path + ": " + why + "\n";
    }
    files["probe/hostname"] = host_ + "\n";
    if (Complete()) files["probe/complete"] = "yes\n";
    if (!unread.empty()) files["unread"] = std::move(unread);
    return files;
}

void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins, std::set<std::string> taken) {
    std::map<std::string, int> given;
    for (const std::string& name : taken) ++given[name];
    for (const auto& host : hosts) ++given[host->host()];
    for (size_t i = 0; i < hosts.size(); ++i) {
        std::string wanted = hosts[i]->host();
        const bool told = i < origins.size() && !origins[i].empty() && origins[i] != wanted;
        if (given[wanted] > 1 && told) wanted += " (" + origins[i] + ")";
        std::string name = wanted;
        for (int count = 2; !taken.insert(name).second; ++count) {
            name = wanted + " (" + std::to_string(count) + ")";
        }
        hosts[i]->Rename(std::move(name));
    }
}

}  // namespace weft::doctor
