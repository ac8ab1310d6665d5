// The hashes by which a job recognizes its model (verify_model.h).
#pragma once

#include <string>

namespace weft::engine {

// The identities (model_files::IdentityOf) of the model and the adapters that all ranks have.
struct ModelIdentity {
    std::string model, adapters;  // "": not known; no adapters
    bool whole = false;           // it is known, and of whole files: another job's is comparable
};

}  // namespace weft::engine
