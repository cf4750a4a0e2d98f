//! A parser for the part of Gherkin that the feature files use.

use std::path::{Path, PathBuf};

/// A scenario with its background. An outline becomes one scenario for each row of its examples.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The feature file.
    pub file: PathBuf,
    /// The line of the scenario, or of the row of examples.
    pub line: usize,
    /// The name of the rule, empty outside of rules.
    pub rule: String,
    /// The text after `Scenario:`.
    pub name: String,
    /// The tags of the scenario, without `@`.
    pub tags: Vec<String>,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    Given,
    When,
    Then,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub kind: StepKind,
    pub text: String,
    pub table: Vec<Vec<String>>,
    pub doc_string: Option<String>,
    pub line: usize,
}

/// A keyword such as `Scenario:` and the lines that belong to it.
struct Block<'a> {
    keyword: &'a str,
    name: &'a str,
    line: usize,
    tags: Vec<String>,
    steps: Vec<Step>,
    /// The table of `Examples:`, with the line of each row.
    examples: Vec<(usize, Vec<String>)>,
}

const DOC_STRING_QUOTES: &str = "\"\"\"";

/// Parses the text of a feature file. An error begins with the file and the line.
pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Scenario>, String> {
    let locate = |line: usize, error: String| format!("{}:{line}: {error}", file.display());
    let (mut blocks, mut tags) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let result = if line.trim() == DOC_STRING_QUOTES {
            parse_doc_string(line, lines.by_ref().map(|(_, line)| line), &mut blocks)
        } else {
            parse_line(index + 1, line.trim(), &mut tags, &mut blocks)
        };
        result.map_err(|error| locate(index + 1, error))?;
    }

    let (mut feature_background, mut rule_background, mut rule) = (Vec::new(), Vec::new(), "");
    let mut scenarios = Vec::new();
    let mut blocks = blocks.into_iter().peekable();
    while let Some(Block { keyword, name, line, tags, steps, .. }) = blocks.next() {
        match keyword {
            "Rule" => (rule, rule_background) = (name, Vec::new()),
            "Background" if rule.is_empty() => feature_background = steps,
            "Background" => rule_background = steps,
            "Scenario" | "Scenario Outline" if steps.is_empty() => {
                return Err(locate(line, "the scenario has no steps".to_owned()));
            }
            "Scenario" | "Scenario Outline" => {
                let (file, rule, name) = (file.to_path_buf(), rule.to_owned(), name.to_owned());
                let scenario = Scenario { file, line, rule, name, tags, steps };
                let expanded = match blocks.next_if(|next| next.keyword == "Examples") {
                    Some(Block { examples, .. }) => expand_outline(&scenario, &examples),
                    None if keyword == "Scenario" => Ok(vec![scenario]),
                    None => Ok(Vec::new()),
                };
                let mut expanded = expanded.map_err(|error| locate(line, error))?;
                if expanded.is_empty() {
                    return Err(locate(line, "the scenario outline has no examples".to_owned()));
                }
                for scenario in &mut expanded {
                    scenario.steps = [&feature_background, &rule_background, &*scenario.steps].concat();
                }
                scenarios.append(&mut expanded);
            }
            _ => {}
        }
    }
    Ok(scenarios)
}

fn parse_line<'a>(
    number: usize,
    line: &'a str,
    tags: &mut Vec<String>,
    blocks: &mut Vec<Block<'a>>,
) -> Result<(), String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if !tags.is_empty() && !line.starts_with("Scenario") {
        return Err("expected a scenario after its tags".to_owned());
    }
    if line.starts_with('@') {
        tags.extend(line.split_whitespace().map(|tag| tag.trim_start_matches('@').to_owned()));
        return Ok(());
    }
    if let Some(row) = line.strip_prefix('|') {
        return parse_row(number, row, blocks);
    }
    let previous = blocks.last().map(|block| block.keyword);
    if let Some((keyword, name)) = line.split_once(':')
        && match keyword {
            "Feature" => previous.is_none(),
            "Rule" | "Scenario" | "Scenario Outline" => previous.is_some(),
            "Background" => matches!(previous, Some("Feature" | "Rule")),
            "Examples" => previous == Some("Scenario Outline"),
            _ => false,
        }
    {
        let (tags, name) = (std::mem::take(tags), name.trim());
        blocks.push(Block { keyword, name, line: number, tags, steps: Vec::new(), examples: Vec::new() });
        return Ok(());
    }
    // A line that looks like a misspelt keyword is not a description.
    let looks_like_keyword =
        || line.split_once(':').is_some_and(|(start, _)| start.split_whitespace().count() < 3);
    match (line.split_once(' ').unwrap_or((line, "")), blocks.last_mut()) {
        (
            (keyword @ ("Given" | "When" | "Then" | "And" | "But"), text),
            Some(Block { keyword: "Background" | "Scenario" | "Scenario Outline", steps, .. }),
        ) => {
            let kind = match (keyword, steps.last()) {
                ("Given", _) => StepKind::Given,
                ("When", _) => StepKind::When,
                ("Then", _) => StepKind::Then,
                (_, Some(earlier)) => earlier.kind,
                (_, None) => return Err(format!("{keyword:?} without an earlier step")),
            };
            let text = text.trim().to_owned();
            steps.push(Step { kind, text, table: Vec::new(), doc_string: None, line: number });
            Ok(())
        }
        (_, Some(Block { keyword: "Feature" | "Rule", .. })) if !looks_like_keyword() => Ok(()),
        _ => Err(format!("unknown or misplaced keyword: {line}")),
    }
}

fn last_step<'b>(blocks: &'b mut [Block<'_>]) -> Result<&'b mut Step, String> {
    let step = blocks.last_mut().and_then(|block| block.steps.last_mut());
    step.ok_or_else(|| "expected a step before this line".to_owned())
}

fn parse_row(number: usize, row: &str, blocks: &mut [Block<'_>]) -> Result<(), String> {
    let row = row.strip_suffix('|').ok_or("a table row has to end with \"|\"")?;
    if row.contains('\\') {
        return Err("escapes in tables are not supported".to_owned());
    }
    let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
    let found = cells.len();
    let expected = if let Some(Block { keyword: "Examples", examples, .. }) = blocks.last_mut() {
        examples.push((number, cells));
        examples[0].1.len()
    } else {
        let table = &mut last_step(blocks)?.table;
        table.push(cells);
        table[0].len()
    };
    if found == expected { Ok(()) } else { Err(format!("expected {expected} cells, got {found}")) }
}

/// Reads up to the closing quotes, and removes the indentation of the opening quotes from each line.
fn parse_doc_string<'a>(
    opening: &str,
    mut lines: impl Iterator<Item = &'a str>,
    blocks: &mut [Block<'_>],
) -> Result<(), String> {
    let (indentation, _) = opening.split_at(opening.len() - opening.trim_start().len());
    let mut content = Vec::new();
    loop {
        let line = lines.next().ok_or("the doc string is not closed")?;
        if line.trim() == DOC_STRING_QUOTES {
            break;
        }
        content.push(line.strip_prefix(indentation).unwrap_or(line.trim_start()));
    }
    match last_step(blocks)?.doc_string.replace(content.join("\n")) {
        Some(_) => Err("the step already has a doc string".to_owned()),
        None => Ok(()),
    }
}

fn expand_outline(outline: &Scenario, examples: &[(usize, Vec<String>)]) -> Result<Vec<Scenario>, String> {
    let Some(((_, header), rows)) = examples.split_first() else { return Ok(Vec::new()) };
    let expand = |(line, row): &(usize, Vec<String>)| {
        let mut scenario = Scenario { line: *line, ..outline.clone() };
        let texts = scenario.steps.iter_mut().flat_map(|step| {
            step.table.iter_mut().flatten().chain(&mut step.doc_string).chain([&mut step.text])
        });
        for text in texts.chain([&mut scenario.name]) {
            *text = fill_placeholders(text, header, row)?;
        }
        Ok(scenario)
    };
    rows.iter().map(expand).collect()
}

/// Replaces each `<column>` by its cell.
fn fill_placeholders(text: &str, header: &[String], row: &[String]) -> Result<String, String> {
    let mut parts = text.split('<');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('>').ok_or_else(|| format!("\"<\" without \">\" in {text:?}"))?;
        let column = header.iter().position(|column| column == name);
        filled += &row[column.ok_or_else(|| format!("the examples have no column {name:?}"))?];
        filled += rest;
    }
    Ok(filled)
}
