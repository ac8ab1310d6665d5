#include <algorithm>

#include "gpu/spirv/writer.h"

namespace weft::gpu::spirv {
namespace {

// Bits of a loop control.
constexpr uint32_t kUnroll = 1, kDontUnroll = 2;

// A block where a construct ends, or where its next turn begins.
struct Exit {
    Id block = 0;
    bool reached = false;  // some path leads there
    bool labeled = false;  // some goto does
};

class Flow {
  public:
    Flow(const Module& module, Expressions& expressions)
        : module_(module), expressions_(expressions) {}

    std::string Run() {
        FindShared();
        FindIndexing();
        std::string declared;
        for (const Id id : shared_) {
            declared += fmt::format("{} v{};\n", expressions_.TypeName(module_.type_of.at(id)), id);
        }
        Sequence(module_.order.front(), 0);
        return declared + text_;
    }

  private:
    // Finds the values that need a variable at the top: phis, and those that blocks other than
    // their own use. An lvalue's indices are used where the lvalue is.
    void FindShared() {
        std::unordered_map<Id, Id> home;
        std::unordered_map<Id, Words> lvalues;
        for (const Id block : module_.order) {
            for (const Instruction& i : module_.blocks.at(block)) {
                if (i.id == 0) continue;
                home[i.id] = block;
                if (i.row->op == Op::kPhi) shared_.push_back(i.id);
                if (IsLvalue(i)) lvalues[i.id] = i.args;
            }
        }
        const auto use = [&](auto&& self, Id id, Id block) -> void {
            const auto lvalue = lvalues.find(id);
            if (lvalue != lvalues.end()) {
                for (const Id index : lvalue->second) self(self, index, block);
                return;
            }
            const auto found = home.find(id);
            if (found != home.end() && found->second != block) shared_.push_back(id);
        };
        for (const Id block : module_.order) {
            for (const Instruction& i : module_.blocks.at(block)) {
                const bool phi = i.row->op == Op::kPhi;
                for (size_t k = 0; k < i.args.size(); k += phi ? 2 : 1) {
                    use(use, i.args[k], phi ? i.args[k + 1] : block);
                }
            }
        }
        std::ranges::sort(shared_);
        shared_.erase(std::unique(shared_.begin(), shared_.end()), shared_.end());
    }

    // Finds the loops whose counter indexes a private array. Compilers keep such an
    // array in scratch memory unless the loop is unrolled.
    void FindIndexing() {
        std::unordered_map<Id, std::pair<const Instruction*, Id>> made;
        for (const Id block : module_.order) {
            for (const Instruction& i : module_.blocks.at(block)) made[i.id] = {&i, block};
        }
        std::unordered_set<Id> seen;
        const auto trace = [&](auto&& self, Id id) -> void {
            const auto found = made.find(id);
            if (found == made.end() || !seen.insert(id).second) return;
            const auto& [from, block] = found->second;
            const bool phi = from->row->op == Op::kPhi;
            if (phi && Merge(block, Op::kLoopMerge) != nullptr) indexing_.insert(block);
            if (phi || from->row->form == Form::kCode) return;
            for (const Id operand : from->args) self(self, operand);
        };
        for (const auto& [id, from] : made) {
            if (id == 0 || !IsLvalue(*from.first)) continue;
            const uint32_t storage = module_.type(from.first->type).args[0];
            if (storage != kFunction && storage != kPrivate) continue;
            for (const Id index : from.first->args.subspan(1)) trace(trace, index);
        }
    }

    bool IsLvalue(const Instruction& i) const {
        return (i.row->op == Op::kAccessChain || i.row->op == Op::kInBoundsAccessChain) &&
               module_.type(i.type).args[0] != kPhysical;
    }

    bool IsShared(Id id) const { return std::ranges::binary_search(shared_, id); }

    const Instruction* Merge(Id block, Op op) const {
        for (const Instruction& i : module_.blocks.at(block)) {
            if (i.row->op == op) return &i;
        }
        return nullptr;
    }

    // Writes `block` and what follows, until control reaches `end` (0: the function's end).
    void Sequence(Id block, Id end) {
        while (block != 0 && block != end) block = Construct(block, end);
    }

    // Writes the construct that starts in `block`; returns the block that follows, or 0.
    Id Construct(Id block, Id end) {
        const Instruction* loop = Merge(block, Op::kLoopMerge);
        return loop != nullptr ? Loop(block, *loop) : Plain(block, end);
    }

    Id Loop(Id header, const Instruction& loop) {
        const Id merge = loop.args[0], next = loop.args[1], control = loop.args[2];
        exits_.push_back({merge});
        const bool unroll = (control & kUnroll) || indexing_.contains(header);
        text_ += unroll ? "WEFT_UNROLL " : control & kDontUnroll ? "WEFT_KEEP " : "WEFT_LOOP ";
        text_ += "for (;;) {\n{\n";
        exits_.push_back({next});
        Sequence(Plain(header, next), next);
        text_ += "}\n";
        if (CloseExit() && next != header) {
            exits_.push_back({header});
            Sequence(next, header);
            CloseExit();
        }
        text_ += "}\n";
        return CloseExit() ? merge : 0;
    }

    // Ends the innermost exit: its label, if a goto needs it. Returns whether a path leads there.
    bool CloseExit() {
        const Exit exit = exits_.back();
        exits_.pop_back();
        if (exit.labeled) text_ += fmt::format("L{}:;\n", exit.block);
        return exit.reached;
    }

    Id Plain(Id block, Id end) {
        if (!written_.insert(block).second) {
            expressions_.Fail(fmt::format("unstructured control flow at block {}", block));
            return 0;
        }
        const Block& body = module_.blocks.at(block);
        text_ += "{\n";
        expressions_.BeginBlock();
        for (const Instruction& i : body) {
            if (i.row->form == Form::kFlow) continue;
            const std::string statement = expressions_.Statement(i, !IsShared(i.id));
            if (!statement.empty()) text_ += statement + "\n";
        }
        const Instruction* selection = Merge(block, Op::kSelectionMerge);
        if (selection != nullptr) exits_.push_back({selection->args[0]});
        Id next = Branch(block, body.back(), selection != nullptr ? selection->args[0] : end);
        if (selection != nullptr) Sequence(next, selection->args[0]);
        text_ += "}\n";
        if (selection == nullptr) return next;
        return CloseExit() ? selection->args[0] : 0;
    }

    // Writes the last instruction of `block`; returns the block that follows in this sequence, or
    // 0.
    Id Branch(Id block, const Instruction& last, Id end) {
        const Words args = last.args;
        if (last.row->op == Op::kReturn) text_ += "return;\n";
        if (last.row->op == Op::kUnreachable) text_ += "__builtin_unreachable();\n";
        if (last.row->op == Op::kBranch) return Go(block, args[0], end);
        if (last.row->op == Op::kSwitch) return Switch(block, args, end);
        if (last.row->op != Op::kBranchConditional) return 0;
        if (const Constant* constant = module_.FindConstant(args[0])) {
            return Go(block, args[constant->bits != 0 ? 1 : 2], end);
        }
        if (args[1] == args[2]) return Go(block, args[1], end);
        const std::string condition = expressions_.Value(args[0]);
        // One branch leaves: the other one continues behind the if.
        for (const int leaves : {1, 2}) {
            if (Merge(block, Op::kSelectionMerge) != nullptr || !IsExit(args[leaves])) continue;
            text_ += fmt::format("if ({}({})) {{\n", leaves == 1 ? "" : "!", condition);
            Go(block, args[leaves], 0);
            text_ += "}\n";
            return Go(block, args[3 - leaves], end);
        }
        text_ += fmt::format("if ({}) {{\n", condition);
        Sequence(Go(block, args[1], end), end);
        const size_t before_else = text_.size();
        text_ += "} else {\n";
        const size_t empty = text_.size();
        Sequence(Go(block, args[2], end), end);
        if (text_.size() == empty) text_.resize(before_else);
        text_ += "}\n";
        return 0;
    }

    // A chain of ifs; cases with one target share a branch.
    Id Switch(Id block, Words args, Id end) {
        const Constant* constant = module_.FindConstant(args[0]);
        std::vector<std::pair<Id, std::string>> cases;
        for (size_t i = 2; i + 1 < args.size(); i += 2) {
            if (constant != nullptr && constant->bits == args[i]) {
                return Go(block, args[i + 1], end);
            }
            const std::string test = fmt::format("{} == {}", expressions_.Value(args[0]), args[i]);
            const auto same =
                std::ranges::find(cases, args[i + 1], &std::pair<Id, std::string>::first);
            if (same != cases.end()) {
                same->second += " || " + test;
            } else if (args[i + 1] != args[1]) {
                cases.emplace_back(args[i + 1], test);
            }
        }
        if (constant != nullptr || cases.empty()) return Go(block, args[1], end);
        for (const auto& [target, test] : cases) {
            text_ += fmt::format("if ({}) {{\n", test);
            Sequence(Go(block, target, end), end);
            text_ += "} else ";
        }
        text_ += "{\n";
        Sequence(Go(block, args[1], end), end);
        text_ += "}\n";
        return 0;
    }

    bool IsExit(Id block) const {
        return std::ranges::find(exits_, block, &Exit::block) != exits_.end();
    }

    // Assigns the phis of `to`, and branches to it: to the end of the sequence by falling through,
    // to another exit by goto. Returns a block that is no exit: it is written next.
    Id Go(Id from, Id to, Id end) {
        Assign(from, to);
        const auto exit = std::ranges::find(exits_.rbegin(), exits_.rend(), to, &Exit::block);
        if (exit == exits_.rend()) return to;
        exit->reached = true;
        if (to != end) {
            exit->labeled = true;
            text_ += fmt::format("goto L{};\n", to);
        }
        return 0;
    }

    void Assign(Id from, Id to) {
        std::vector<std::pair<Id, std::string>> pairs;
        for (const Instruction& i : module_.blocks.at(to)) {
            if (i.row->op != Op::kPhi) break;
            for (size_t k = 0; k < i.args.size(); k += 2) {
                if (i.args[k + 1] != from) continue;
                const std::string value = expressions_.Value(i.args[k]);
                if (value != fmt::format("v{}", i.id)) pairs.emplace_back(i.id, value);
            }
        }
        if (pairs.size() == 1) text_ += fmt::format("v{} = {};\n", pairs[0].first, pairs[0].second);
        if (pairs.size() < 2) return;
        std::string read, write;
        for (const auto& [id, value] : pairs) {
            read += fmt::format("const {} t{} = {};\n",
                                expressions_.TypeName(module_.type_of.at(id)), id, value);
            write += fmt::format("v{} = t{};\n", id, id);
        }
        text_ += "{\n" + read + write + "}\n";
    }

    const Module& module_;
    Expressions& expressions_;
    std::vector<Id> shared_;
    std::unordered_set<Id> indexing_;  // headers of loops
    std::vector<Exit> exits_;
    std::unordered_set<Id> written_;
    std::string text_;
};

}  // namespace

std::string WriteBody(const Module& module, Expressions& expressions) {
    return Flow(module, expressions).Run();
}

}  // namespace weft::gpu::spirv
