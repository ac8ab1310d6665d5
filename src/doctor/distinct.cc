#include "doctor/distinct.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace weft::doctor {
namespace {

class RenamedView : public HostView {
  public:
    RenamedView(std::unique_ptr<HostView> view, std::string name)
        : view_(std::move(view)), name_(std::move(name)) {}
    std::string host() const override { return name_; }
    bool Complete() const override { return view_->Complete(); }
    Reading Read(const std::string& path) override { return view_->Read(path); }
    Reading Link(const std::string& path) override { return view_->Link(path); }
    std::vector<std::string> List(const std::string& path) override { return view_->List(path); }
    Reading Command(const std::string& words) override { return view_->Command(words); }
    Reading Probe(const std::string& name) override { return view_->Probe(name); }
    Reading Later(const std::string& path) override { return view_->Later(path); }
    std::map<std::string, std::string> Unread() const override { return view_->Unread(); }

  private:
    std::unique_ptr<HostView> view_;
    std::string name_;
};

}  // namespace

void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins, std::set<std::string> taken) {
    std::map<std::string, int> given;
    for (const std::string& name : taken) ++given[name];
    for (const auto& host : hosts) ++given[host->host()];
    for (size_t i = 0; i < hosts.size(); ++i) {
        const std::string own = hosts[i]->host();
        const std::string origin = i < origins.size() ? origins[i] : "";
        const bool alone = given[own] == 1 || origin.empty() || origin == own;
        const std::string wanted = alone ? own : fmt::format("{} ({})", own, origin);
        std::string name = wanted;
        for (int count = 2; !taken.insert(name).second; ++count) {
            name = fmt::format("{} ({})", wanted, count);
        }
        if (name != own) hosts[i] = std::make_unique<RenamedView>(std::move(hosts[i]), name);
    }
}

}  // namespace weft::doctor
