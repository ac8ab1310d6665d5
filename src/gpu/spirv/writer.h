// Writes the statements of a kernel: Expressions translates single instructions, Flow the control
// flow around them.
//
// Every value of SPIR-V has a C++ variable v<id>. A pointer into device memory is a number, the
// address. Any other pointer is the text of an lvalue and has no variable.
//
// Errors: both store the first error, and continue.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gpu/spirv/module.h"

namespace weft::gpu::spirv {

class Expressions {
  public:
    explicit Expressions(const Module& module);

    // Names of C++ types; definitions of structs and constants go to definitions().
    std::string TypeName(Id type);
    // The value of an operand.
    std::string Value(Id id);
    std::string Literal(const Constant& constant);
    // Statements for an instruction that is not control flow. `declare`: whether it declares its
    // variable; otherwise the variable exists already.
    std::string Statement(const Instruction& instruction, bool declare);
    // The following statements belong to another block.
    void BeginBlock() { made_.clear(); }
    // The text replaces v<id> for an lvalue or an input.
    void SetText(Id id, std::string text) { text_[id] = std::move(text); }

    const std::string& definitions() const { return definitions_; }
    const Status& status() const { return status_; }
    void Fail(const std::string& what);

  private:
    // Component `lane` of an operand, or the operand if it is no vector.
    std::string Component(Id id, uint32_t lane);
    std::string Cast(Id id, uint32_t lane, bool is_signed);
    std::string Expand(std::string_view format, const Instruction& from, uint32_t lane);
    std::string Each(std::string_view format, const Instruction& from);
    std::string Term(std::string_view format, const Instruction& from, uint32_t lane);
    const Instruction* FindDot(Id id, uint32_t lane) const;
    std::string Expression(const Instruction& instruction);
    std::string Construct(const Instruction& instruction);
    std::string Joined(const Instruction& instruction);
    std::string Shuffle(const Instruction& instruction);
    std::string Extract(const Instruction& instruction);
    std::string Insert(const Instruction& instruction, bool declare);
    std::string Path(Id type, Words indices);
    std::string Scalar(Id type);
    std::string StructName(Id type);
    void Check(const std::string& condition);
    // Access to memory.
    bool IsPhysical(Id pointer) const;
    std::string Chain(const Instruction& instruction);
    std::string ChainAddress(const Instruction& instruction);
    std::string Load(const Instruction& instruction);
    std::string Store(const Instruction& instruction);
    std::string Place(Id pointer);
    // "" or the suffix of functions for shared memory of this pointer.
    std::string Sharing(Id pointer) const;
    std::string AlignmentOf(Id type, Words access);

    const Module& module_;
    std::unordered_map<Id, std::string> text_;
    std::unordered_map<Id, std::string> picked_;       // pointers to components: vector and index
    std::unordered_map<Id, Decoration> sharing_;       // pointers to coherent or volatile memory
    std::unordered_map<Id, const Instruction*> made_;  // by this block so far
    std::unordered_set<std::string> checks_;
    std::unordered_set<Id> structs_;
    std::string definitions_;
    Status status_;
};

// The body of the function as C++: loops as for (;;), selections as if. Exits from several levels
// are gotos to a label right behind a construct.
std::string WriteBody(const Module& module, Expressions& expressions);

// The definitions in front of each kernel (prelude.cc).
std::string Prelude(const Request& request, const Module& module);

}  // namespace weft::gpu::spirv
