// Clique-tree elimination of merlin: for each case over a tree that is kept, or over one made of what is left of the
// network, which is what its own program does.
//
// Argument: kept or made. What making a tree takes is part of a case where it is made for it.
#include <memory>

#include "cte.h"

#include "clique_trees.hpp"

static const char *OPTIONS = "Order=MinFill,Task=MAR,Debug=0,Verbose=0";

int main(int count, char **arguments) {
    if (count != 2) return 2;
    bool is_kept = std::string(arguments[1]) == "kept";
    Input input = read_input();
    std::vector<merlin::factor> factors;
    for (size_t t = 0; t < input.tables.size(); t++) {
        merlin::variable_set scope;
        for (size_t i = 0; i < input.tables[t].scope.size(); i++) {
            size_t v = input.tables[t].scope[i];
            scope |= merlin::variable(v, input.sizes[v]);
        }
        factors.push_back(merlin::factor(scope, &input.tables[t].cells[0]));
    }
    merlin::graphical_model model(factors);
    double begin = seconds();
    merlin::cte tree(model);
    tree.set_properties(OPTIONS);
    if (is_kept) tree.init();
    print_line(seconds() - begin, std::vector<double>());
    double spent = 0;
    for (size_t c = 0; c < input.cases.size() && spent < input.limit; c++) {
        begin = seconds();
        std::vector<double> found;
        std::vector<int> observed(input.sizes.size(), -1);
        std::map<size_t, size_t> evidence, places;
        for (size_t i = 0; i < input.cases[c].size(); i++) {
            observed[input.cases[c][i].first] = (int)input.cases[c][i].second;
            evidence[input.cases[c][i].first] = input.cases[c][i].second;
        }
        std::unique_ptr<merlin::cte> own;
        if (is_kept) {
            tree.propagate_evidence(observed);
        } else {
            merlin::graphical_model left(model.assert_evidence(evidence, places));
            own.reset(new merlin::cte(left));
            own->set_properties(OPTIONS);
            own->init();
            own->calibrate();
            own->update();
        }
        for (size_t v = 0; v < input.sizes.size(); v++)
            for (size_t value = 0; value < input.sizes[v]; value++) {
                if (observed[v] >= 0)
                    found.push_back((size_t)observed[v] == value ? 1.0 : 0.0);
                else
                    found.push_back((is_kept ? tree.belief(v) : own->belief(places[v]))[value]);
            }
        double taken = seconds() - begin;
        spent += taken;
        print_line(taken, found);
    }
    return 0;
}
