// Junction trees of libDAI (Mooij 2010): one is made and kept, and swept over for each case.
//
// Arguments: updates (HUGIN or SHSH) and heuristic (MINFILL, WEIGHTEDMINFILL, ...). An observation multiplies the smallest
// clique of its variable by a mask, and the clique's own numbers are put back afterwards: JTree::clamp computes cliques anew
// several times. A posterior is taken from the smallest table that has its variable, which is looked up once.
#include <dai/jtree.h>

#include "clique_trees.hpp"

int main(int count, char **arguments) {
    if (count != 3) return 2;
    Input input = read_input();
    std::vector<dai::Factor> factors;
    for (size_t t = 0; t < input.tables.size(); t++) {
        dai::VarSet scope;
        for (size_t i = 0; i < input.tables[t].scope.size(); i++) {
            size_t v = input.tables[t].scope[i];
            scope |= dai::Var(v, input.sizes[v]);
        }
        factors.push_back(dai::Factor(scope, input.tables[t].cells));
    }
    dai::FactorGraph graph(factors);
    double begin = seconds();
    dai::PropertySet options;
    options.set("updates", std::string(arguments[1]));
    options.set("heuristic", std::string(arguments[2]));
    dai::JTree tree(graph, options);
    std::vector<size_t> clique(input.sizes.size()), separator(input.sizes.size());
    double cells = 0;
    for (size_t alpha = 0; alpha < tree.nrORs(); alpha++) cells += (double)tree.OR(alpha).nrStates();
    for (size_t v = 0; v < input.sizes.size(); v++) {
        size_t none = (size_t)-1, best = none, between = none;
        dai::Var variable(v, input.sizes[v]);
        for (size_t alpha = 0; alpha < tree.nrORs(); alpha++)
            if (tree.OR(alpha).vars().contains(variable) &&
                (best == none || tree.OR(alpha).nrStates() < tree.OR(best).nrStates()))
                best = alpha;
        for (size_t beta = 0; beta < tree.nrIRs(); beta++)
            if (tree.IR(beta).contains(variable) &&
                (between == none || tree.Qb[beta].nrStates() < tree.Qb[between].nrStates()))
                between = beta;
        clique[v] = best;
        separator[v] = between;
    }
    print_line(seconds() - begin, std::vector<double>(1, cells));
    double spent = 0;
    for (size_t c = 0; c < input.cases.size() && spent < input.limit; c++) {
        begin = seconds();
        std::vector<std::pair<size_t, dai::Factor> > before;
        for (size_t i = 0; i < input.cases[c].size(); i++) {
            size_t v = input.cases[c][i].first;
            dai::Factor mask(dai::Var(v, input.sizes[v]), (dai::Real)0);
            mask.set(input.cases[c][i].second, 1);
            before.push_back(std::make_pair(clique[v], dai::Factor(tree.OR(clique[v]))));
            static_cast<dai::Factor &>(tree.OR(clique[v])) *= mask;
        }
        tree.run();
        std::vector<double> found;
        for (size_t v = 0; v < input.sizes.size(); v++) {
            const dai::Factor &table = separator[v] == (size_t)-1 ? tree.Qa[clique[v]] : tree.Qb[separator[v]];
            dai::Factor posterior = table.marginal(dai::VarSet(dai::Var(v, input.sizes[v])));
            for (size_t value = 0; value < input.sizes[v]; value++) found.push_back(posterior[value]);
        }
        for (size_t i = before.size(); i-- > 0;)
            static_cast<dai::Factor &>(tree.OR(before[i].first)) = before[i].second;
        double taken = seconds() - begin;
        spent += taken;
        print_line(taken, found);
    }
    return 0;
}
