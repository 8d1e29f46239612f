"""Where a page comes from: command, commit, versions, machine and date."""


def foot_of(command: str, *more: str) -> list[str]:
    """Return the lines below a page: the command and its machine, what else there is to say, the versions."""
    import torch

    from orthosparse.lab.provenance import provenance

    found = provenance(torch.device("cpu"))
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    where = f"{command}; commit {found['commit'] or 'unknown'}; {found['device']}; {found['date']}"
    return [where, *more, versions]
